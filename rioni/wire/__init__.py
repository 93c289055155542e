"""The bodies and answers of the API, each described once as a msgspec struct.

The description of the API, the checks of request bodies, and the types of the client are made from them.
"""
