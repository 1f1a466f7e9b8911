// Text fields that end with a zero byte, which neither arguments nor variables can have.
#include "tools/launch/assignment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "core/base/error.h"
#include "core/base/shown.h"
#include "tools/flags/flags.h"

namespace troupe::tools {
namespace {

constexpr int kAgentVersion = 2;
constexpr size_t kFrameHead = 9;
constexpr std::string_view kKinds = "poexwisr";

template <class T>
T number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw_invalid("[run] an assignment has '" + shown(text) + "' for a number");
  return value;
}

}  // namespace

std::string agent_hello() { return fmt::format("{}{} {}", kAgentGreeting, kAgentVersion, version()); }

std::string encode_length(size_t length) {
  const auto n = static_cast<uint32_t>(length);
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(n >> shift & 0xff);
  return bytes;
}

uint32_t decode_length(const char* bytes) {
  uint32_t n = 0;
  for (int i = 3; i >= 0; --i) n = n << 8 | static_cast<unsigned char>(bytes[i]);
  return n;
}

std::string Assignment::encode() const {
  std::string out;
  const auto put = [&](const char* key, const std::string& value) {
    out += std::string(key) + "=" + value;
    out += '\0';
  };
  put("folder", folder);
  put("first", std::to_string(first));
  put("count", std::to_string(count));
  put("grace", fmt::format("{}", grace));
  if (check) put("check", "1");
  for (const auto& [name, value] : variables) put("variable", name + "=" + value);
  for (const auto& word : command) put("word", word);
  return out;
}

Assignment Assignment::decode(std::string_view bytes) {
  Assignment a;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\0'), equals = bytes.find('=');
    if (end == std::string_view::npos || equals > end)
      throw_invalid("[run] an assignment of " + std::to_string(bytes.size()) + " bytes does not end");
    const std::string_view key = bytes.substr(0, equals), value = bytes.substr(equals + 1, end - equals - 1);
    bytes.remove_prefix(end + 1);
    if (key == "folder") {
      a.folder = value;
    } else if (key == "first") {
      a.first = number<int64_t>(value);
    } else if (key == "count") {
      a.count = number<int64_t>(value);
    } else if (key == "grace") {
      a.grace = number<double>(value);
    } else if (key == "check") {
      a.check = true;
    } else if (key == "word") {
      a.command.emplace_back(value);
    } else if (const size_t name = value.find('='); key == "variable" && name != std::string_view::npos) {
      a.variables.emplace_back(value.substr(0, name), value.substr(name + 1));
    } else {
      throw_invalid("[run] an assignment has a field '" + shown(key) + "'");
    }
  }
  if (a.count < 1 || a.first < 0 || (a.command.empty() && !a.check))
    throw_invalid("[run] an assignment has no worker or no program");
  return a;
}

std::string AgentFrame::encode() const {
  std::string out(1, kind);
  out += encode_length(local);
  out += encode_length(bytes.size());
  out += bytes;
  return out;
}

bool AgentFrames::feed(std::string_view bytes, const std::function<void(const AgentFrame&)>& take) {
  rest_ += bytes;
  size_t at = 0;
  for (; rest_.size() - at >= kFrameHead;) {
    const char* head = rest_.data() + at;
    const size_t length = decode_length(head + 5);
    if (kKinds.find(*head) == std::string_view::npos || length > kMost) return false;
    if (rest_.size() - at - kFrameHead < length) break;
    take({static_cast<AgentFrame::Kind>(*head), decode_length(head + 1),
          std::string_view(rest_).substr(at + kFrameHead, length)});
    at += kFrameHead + length;
  }
  rest_.erase(0, at);
  return true;
}

}  // namespace troupe::tools
