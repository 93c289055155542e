"""How hosts and ports are written together, also where the host is an address of IPv6."""


def host_and_port(host: str, port: int) -> str:
    """A host and a port as URLs have them: `[::1]:8080`, `[fe80::1%25eth0]:8080`.

    Args:
        host: a name or an address, with or without brackets.
        port: the port.
    """
    if ":" not in host or host.startswith("["):
        return f"{host}:{port}"
    return f"[{host.replace('%25', '%').replace('%', '%25')}]:{port}"
