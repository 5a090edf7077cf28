"""A finished model as an ONNX file, in a folder that needs neither torch nor this package."""
