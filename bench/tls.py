#!/usr/bin/env python3
"""Calls between two processes over TCP on loopback, plain and by TLS, in turns: medians, with the least and the most.

    tls.py BIN_DIR [ROUNDS]

`./dev bench record tls` keeps them.
"""
import statistics, sys

from programs import lines_over_tcp

COLUMNS = ["bench", "unit", "plain", "by TLS", "times as much"]


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g}..{max(values):.4g})"


def rows(bin_dir, rounds):
    found = {}
    for _ in range(rounds):
        for way in ("0", "require"):
            printed = lines_over_tcp(bin_dir, "rpc", TROUPE_TLS=way)
            if printed is None:
                sys.exit(f"tls: bench_rpc failed with TROUPE_TLS={way}")
            for line in printed:
                if line["bench"] not in ("rpc_echo_us", "rpc_tensor_us", "rpc_async_calls_per_s"):
                    continue
                name = line["bench"] + (f" kib={line['kib']:g}" if "kib" in line else "")
                found.setdefault((name, line["unit"]), {}).setdefault(way, []).append(line["value"])
                if "gb_per_s" in line:
                    found.setdefault((f"rpc_tensor_gb_per_s kib={line['kib']:g}", "GB/s"), {}).setdefault(way, []).append(line["gb_per_s"])
    return [[name, unit, spread(ways["0"]), spread(ways["require"]), f"{statistics.median(ways['require']) / statistics.median(ways['0']):.2f}"]
            for (name, unit), ways in found.items()]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    for name, unit, plain, tls, ratio in [COLUMNS, *rows(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 3)]:
        print(f"{name:34}{unit:>6}{plain:>36}{tls:>36}{ratio:>15}")


if __name__ == "__main__":
    main()
