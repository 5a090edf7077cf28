"""Adapting a base that others pretrained to the user's text: `rehead pretrain --from`."""
