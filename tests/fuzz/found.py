"""Inputs that are tried in every run: those that broke a law once, and where searches begin."""

from __future__ import annotations

FOUND: dict[str, dict[str, bytes]] = {
    "body": {
        "form": b"inputs=a&b=c",
        "list": b'{"inputs": ["a", "b"], "parameters": {"top_k": 3, "targets": ["x"]}}',
        "surrogate": b'{"inputs": "\\ud800", "parameters": {"top_k": 1e999}}',
    },
    "headers": {
        "each": (b"\x00identity\n\x01gzip\n\x025\n\x03text/plain; charset=utf-8\n\x06abc\n\x08100"),
    },
    "heads": {
        "head behind a body": (
            b"\x03HEAD / HTTP/1.1\r\n"
            b"Content-Type: text/plain\r\n"
            b"Content-Length: 5\r\n"
            b"\r\n"
            b"h\xe5lloGET /li\x1bez HTTP\xac\xac\xac\xac/0.1\r\n"
            b"\r\n"
        ),
        "pipelined": (
            b"\x03POST / HTTP/1.1\r\n"
            b"Content-Type: text/plain\r\n"
            b"Content-Length: 5\r\n"
            b"\r\n"
            b"helloGET /livez HTTP/1.1\r\n"
            b"\r\n"
        ),
        "upgrade": (
            b"\x00POST / HTTP/1.1\r\n"
            b"Connection: Upgrade\r\n"
            b"Upgrade: h2c\r\n"
            b"Transfer-Encoding: chunked\r\n"
            b"\r\n"
            b"5\r\n"
            b"hello\r\n"
            b"0\r\n"
            b"\r\n"
        ),
    },
    "inference": {
        "pixels": (
            b'{"inputs": [{"name": "inputs", "datatype": "UINT8", "shape": [1, 2, 3],'
            b' "parameters": {"binary_data_size": 6}}]}\nabcdef'
        ),
        "samples": (
            b'{"inputs": [{"name": "inputs", "datatype": "FP32", "shape": [2, 1],'
            b' "data": [[0.5], [-1]], "parameters": {"sampling_rate": 8000}}]}'
        ),
        "texts": (
            b'{"id": "a", "inputs": [{"name": "inputs", "datatype": "BYTES", "shape": [1, 1],'
            b' "parameters": {"binary_data_size": 5}}], "outputs": [{"name": "outputs"}]}'
            b"\n\x01\x00\x00\x00a"
        ),
    },
    "wire": {
        "empty frame": b"\x00\x00\x00\x01\x80",
    },
}
