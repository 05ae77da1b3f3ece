"""Topics as data: the grammar of their names, their contracts, the catalogue made of them."""
