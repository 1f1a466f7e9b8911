// What the machine keeps for an audit.
#include "tests/support/sim_cuda/audit.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tests/support/sim_cuda/machine.h"

namespace sim_cuda {
namespace {

// The last name in a demangled type that says what a kernel does: launchers and helpers have names, too.
std::string body_of(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  const std::string whole = text ? text : type.name();
  std::free(text);
  constexpr std::string_view kSpace = "on_cuda::", kHidden = "(anonymous namespace)::";
  std::string found;
  for (size_t at = whole.find(kSpace); at != std::string::npos; at = whole.find(kSpace, at)) {
    at += kSpace.size();
    if (whole.compare(at, kHidden.size(), kHidden) == 0) at += kHidden.size();
    size_t end = at;
    while (end < whole.size() && (std::isalnum(static_cast<unsigned char>(whole[end])) || whole[end] == '_'))
      ++end;
    const std::string name = whole.substr(at, end - at);
    if (!name.empty() && std::isupper(static_cast<unsigned char>(name[0])) && name != "Places" &&
        found.empty())
      found = name;
  }
  return found;
}

uint64_t bytes_of(std::vector<std::pair<uintptr_t, uintptr_t>> spans) {
  std::ranges::sort(spans);
  uint64_t bytes = 0;
  uintptr_t reached = 0;
  for (const auto& [begin, end] : spans) {
    bytes += end > std::max(begin, reached) ? end - std::max(begin, reached) : 0;
    reached = std::max(reached, end);
  }
  return bytes;
}

}  // namespace

uint64_t Spans::read_bytes() const { return bytes_of(read); }
uint64_t Spans::written_bytes() const { return bytes_of(written); }

void Machine::keep_kernel(const char* name, const std::type_info& type, const Spans& spans, uint64_t blocks,
                          uint64_t threads, size_t shared_bytes) {
  if (audited)
    audited->push_back({Asked::Kind::kernel, name, body_of(type), spans.read_bytes(), spans.written_bytes(),
                        0, blocks, threads, shared_bytes});
}
void Machine::keep(Asked asked) {
  if (audited) audited->push_back(std::move(asked));
}

void begin_audit() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.audited.emplace();
}
std::vector<Asked> end_audit() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  std::vector<Asked> all = m.audited ? std::move(*m.audited) : std::vector<Asked>();
  m.audited.reset();
  return all;
}

DryRun::DryRun() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.run_all("the begin of a dry run");
  m.dry = true;
}
DryRun::~DryRun() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.run_all("the end of a dry run");
  m.dry = false;
}

}  // namespace sim_cuda
