// What a program asks of simulated GPUs, kept one by one, and dry runs, in which nothing is computed: what a
// step of any size costs shows in seconds. No header of CUDA is needed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sim_cuda {

/// Work that a program put on a stream.
struct Asked {
  enum class Kind : uint8_t { kernel, product, fill, copy };
  Kind kind = Kind::kernel;
  std::string name;  ///< of the launch: the operator, mostly
  std::string body;  ///< of a kernel: what it does, a type of the program
  /// Bytes that its arguments reach, those of several that overlap once. What a kernel may write counts as
  /// written, though it may read it, too.
  uint64_t read = 0, written = 0;
  double flops = 0;  ///< of a product
  uint64_t blocks = 0, threads = 0, shared_bytes = 0;
};

/// Keeps what is asked for from now on, until end_audit().
void begin_audit();
std::vector<Asked> end_audit();

/// While it lives, what is asked for is counted and forgotten: memory of devices has no contents, what is
/// copied from there is zeros.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
};

}  // namespace sim_cuda
