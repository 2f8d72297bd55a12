"""What synthesis adds to the border: `tallytree.privacy` says what it promises and in which order to read it."""
