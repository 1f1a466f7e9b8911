"""64 MiB from one process to another by a socket, each answered by a byte: the limit of hosts.py --beside.

    raw_socket.py [--quick]             says "listening", and receives
    raw_socket.py [--quick] ADDRESS     sends, and prints lines as bench_links does
"""
import json, socket, sys, time

PORT, SIZE, KIB = 29500, 64 << 20, 65536
quick = "--quick" in sys.argv
address = [a for a in sys.argv[1:] if a != "--quick"]
times = 3 if quick else 10

if address:
    with socket.create_connection((address[0], PORT)) as s:
        data, took = bytes(SIZE), []
        for _ in range(times):
            start = time.perf_counter()
            s.sendall(data)
            if s.recv(1) != b"+":
                sys.exit("raw_socket.py: the receiver has gone")
            took.append(time.perf_counter() - start)
    us = sorted(took[2:])[len(took[2:]) // 2] * 1e6
    for bench in ("send_us", "call_us"):
        print(json.dumps(dict(system="raw sockets", bench=bench, value=round(us, 4), unit="us", kib=KIB)))
else:
    with socket.create_server(("", PORT)) as listener:
        print("listening", flush=True)
        s, _ = listener.accept()
        with s:
            place = memoryview(bytearray(SIZE))
            for _ in range(times):
                got = 0
                while got < SIZE:
                    n = s.recv_into(place[got:])
                    if not n:
                        sys.exit("raw_socket.py: the sender has gone")
                    got += n
                s.sendall(b"+")
