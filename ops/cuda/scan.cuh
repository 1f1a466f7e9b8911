// Scans along lines in a fixed order, so that results have the same bits from run to run (CUB's differ for
// floating numbers). What is scanned, and what becomes of it, says a struct like this one, of a value type A:
//   A zero() const;  A value(int64_t at) const;  A join(A, A) const;
//   void write(int64_t at, A before, A own) const;   // before: of the elements before this one in its line
#pragma once
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {

constexpr int64_t kScanEach = 8, kScanPiece = kThreads * kScanEach;

template <class A, class Body>
struct ScanPieces {
  A* parts;  // of each piece of each line: its elements joined, then all pieces before it
  Lines lines;
  int64_t pieces;
  Body body;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, parts);
    body.visit(f);
  }
  struct Mine {
    int64_t at, count;
  };
  __device__ Mine elements_of(int64_t number) const {
    const int64_t first = number % pieces * kScanPiece + threadIdx.x * kScanEach, rest = lines.n - first;
    return {lines.begin(number / pieces) + first * lines.inner, rest < kScanEach ? rest : kScanEach};
  }
  __device__ A joined(const Mine& mine) const {
    A all = body.zero();
    for (int64_t i = 0; i < mine.count; ++i) all = body.join(all, body.value(mine.at + i * lines.inner));
    return all;
  }
};

template <class A, class Body>
struct JoinPieces {
  ScanPieces<A, Body> scan;
  template <class F>
  void visit(F&& f) {
    scan.visit(f);
  }
  struct Join {
    const Body& body;
    __device__ A merge(A a, A b) const { return body.join(a, b); }
  };
  __device__ void operator()(int64_t number) const {
    const A all = block_merge(scan.joined(scan.elements_of(number)), Join{scan.body});
    if (threadIdx.x == 0) scan.parts[number] = all;
  }
};
template <class A, class Body>
struct ScanParts {
  ScanPieces<A, Body> scan;
  template <class F>
  void visit(F&& f) {
    scan.visit(f);
  }
  __device__ void operator()(int64_t line) const {
    A before = scan.body.zero();
    for (int64_t i = line * scan.pieces; i < (line + 1) * scan.pieces; ++i) {
      const A own = scan.parts[i];
      scan.parts[i] = before;
      before = scan.body.join(before, own);
    }
  }
};
template <class A, class Body>
struct WritePieces {
  ScanPieces<A, Body> scan;
  template <class F>
  void visit(F&& f) {
    scan.visit(f);
  }
  __device__ void operator()(int64_t number) const {
    __shared__ A sums[kThreads];
    const unsigned me = threadIdx.x;
    const auto mine = scan.elements_of(number);
    A up_to_me = scan.joined(mine);
    sums[me] = up_to_me;
    __syncthreads();
    for (unsigned apart = 1; apart < kThreads; apart *= 2) {
      if (me >= apart) up_to_me = scan.body.join(sums[me - apart], up_to_me);
      __syncthreads();
      sums[me] = up_to_me;
      __syncthreads();
    }
    A before = scan.parts ? scan.parts[number] : scan.body.zero();
    if (me) before = scan.body.join(before, sums[me - 1]);
    for (int64_t i = 0; i < mine.count; ++i) {
      const int64_t at = mine.at + i * scan.lines.inner;
      const A own = scan.body.value(at);
      scan.body.write(at, before, own);
      before = scan.body.join(before, own);
    }
    __syncthreads();  // the block's next piece writes there
  }
};

/// All lines.
template <class A, class Body>
void scan_lines(const char* name, Device device, const Lines& lines, const Body& body) {
  const int64_t pieces = (lines.n + kScanPiece - 1) / kScanPiece, all = lines.rows() * pieces;
  if (all == 0) return;
  const Tensor memory = pieces > 1 ? scratch<A>(all, device) : Tensor();
  const ScanPieces<A, Body> scan{elements<A>(memory), lines, pieces, body};
  if (pieces > 1) {
    for_each_block(name, device, all, kThreads, JoinPieces<A, Body>{scan});
    for_each(name, device, lines.rows(), ScanParts<A, Body>{scan});
  }
  for_each_block(name, device, all, kThreads, WritePieces<A, Body>{scan});
}

}  // namespace troupe::ops::on_cuda
