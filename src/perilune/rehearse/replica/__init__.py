"""One server: admission, chunked prefill, decode and retraction as the engine's scheduler does them."""
