"""A room of the house; see ARCHITECTURE.md."""
