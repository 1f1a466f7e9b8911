// Random bytes that nobody can foretell: for names, keys and numbers of processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe::internal {

/// Fills them from the kernel's generator. (OpenSSL's takes memory for each thread, and crashes where there
/// is none.) Throws `failed` if the system gives none.
void random_bytes(void* to, size_t count);
uint64_t random_number();
/// Of `bytes` bytes, two digits each.
std::string random_hex(size_t bytes);

}  // namespace troupe::internal
