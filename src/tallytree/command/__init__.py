"""The command line: reads specs, calls the library and displays results."""
