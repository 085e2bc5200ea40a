"""An FTP server and a web server of a folder, for clients behind the router.

servers.py FOLDER     FTP is on port 21, with data ports 40000 to 40099, and the web on port 80, by IPv4 and IPv6.
"""

import functools
import http.server
import socket
import sys
import threading

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

folder = sys.argv[1]


class Ftp(FTPHandler):
    authorizer = DummyAuthorizer()
    passive_ports = range(40000, 40100)


Ftp.authorizer.add_user("user", "pass", folder, perm="elrw")


class Web(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


web = Web(
    ("::", 80), functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
)
threading.Thread(target=web.serve_forever, daemon=True).start()
FTPServer(("::", 21), Ftp).serve_forever()
