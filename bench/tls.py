#!/usr/bin/env python3
"""Calls between two processes over TCP on loopback, plain and by TLS, in turns: medians, with the least and the most.

    tls.py BIN_DIR [ROUNDS]
"""
import statistics, sys

from programs import lines_over_tcp


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    found = {}
    for _ in range(int(sys.argv[2]) if len(sys.argv) == 3 else 3):
        for way in ("0", "require"):
            printed = lines_over_tcp(sys.argv[1], "rpc", TROUPE_TLS=way)
            if printed is None:
                sys.exit(f"tls: bench_rpc failed with TROUPE_TLS={way}")
            for line in printed:
                if line["bench"] not in ("rpc_echo_us", "rpc_tensor_us", "rpc_async_calls_per_s"):
                    continue
                name = line["bench"] + (f" kib={line['kib']:g}" if "kib" in line else "")
                found.setdefault(name, {}).setdefault(way, []).append(line["value"])
                if "gb_per_s" in line:
                    found.setdefault(f"rpc_tensor_gb_per_s kib={line['kib']:g}", {}).setdefault(way, []).append(line["gb_per_s"])
    print(f"{'':34}{'plain':>32}{'by TLS':>32}")
    for name, ways in found.items():
        print(f"{name:34}" + "".join(f"{statistics.median(v):14.4g} ({min(v):.4g}..{max(v):.4g})".rjust(32) for v in ways.values()))


if __name__ == "__main__":
    main()
