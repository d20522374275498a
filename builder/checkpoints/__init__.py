"""Reading Hugging Face checkpoint folders, and comparing the tokenizers of two of them."""
