"""Files to documents, tokens and batches; see ARCHITECTURE.md."""
