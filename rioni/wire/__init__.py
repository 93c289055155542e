"""The bodies and answers of the API, each described once as a msgspec struct.

`json_schema` makes schemas from them, for the description of the API and for the checks of request bodies. The client
reads and writes them.
"""
