"""What is published: release directories and directories of synthetic households, made, saved, loaded, verified."""
