#include "troupe/launch_environment.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/shown.h"
#include "net/address.h"
#include "net/protocol/token.h"

namespace troupe {
namespace {

struct Dialect {
  const char *rank, *world;
};
constexpr Dialect kDialects[] = {{"TROUPE_RANK", "TROUPE_WORLD_SIZE"},
                                 {"RANK", "WORLD_SIZE"},
                                 {"SLURM_PROCID", "SLURM_NTASKS"},
                                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                 {"PMI_RANK", "PMI_SIZE"}};
constexpr uint32_t kMaxWorld = 1 << 20;

[[noreturn]] void refuse(const char* name, const std::string& text, const std::string& expected) {
  throw_invalid("[launch] " + std::string(name) + " is '" + shown(text) + "'; expected " + expected);
}

uint32_t parse(const char* name, const std::string& text, uint32_t least, uint32_t most) {
  uint32_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < least || n > most)
    refuse(name, text, "a whole number, " + std::to_string(least) + " to " + std::to_string(most));
  return n;
}

// "tcp:10.0.0.2:29500", "tcp:[::1]:0".
std::string tcp_address(const char* name, const std::string& host, const std::string& port) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  in6_addr v6{};
  const bool is_v6 = inet_pton(AF_INET6, bare.substr(0, bare.find('%')).c_str(), &v6) == 1;
  if (bare.find(':') != std::string::npos ? !is_v6 : bracketed)
    refuse(name, host, "a host alone, without a port or a scheme, as 10.0.0.2, node1 or ::1");
  const std::string address = internal::net::tcp_address(is_v6 ? "[" + bare + "]" : bare, port);
  try {
    (void)internal::net::parse_address(address);
  } catch (const Error&) {
    refuse(name, host, "a host, as 10.0.0.2, node1 or ::1");
  }
  return address;
}

uint16_t parse_port(const char* name, const std::string& text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    refuse(name, text, "a port, 1 to 65535");
  return port;
}

Duration parse_seconds(const char* name, const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0 && seconds <= 1e6))
    refuse(name, text, "seconds, above 0 and up to 1000000");
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

bool parse_switch(const char* name, const std::optional<std::string>& text) {
  if (!text || *text == "1") return true;
  if (*text == "0") return false;
  refuse(name, *text, "0 or 1");
}

// The secret itself is not shown.
std::string checked_token(const std::string& token) {
  if (token.size() < internal::net::kMinTokenBytes)
    throw_invalid("[launch] TROUPE_TOKEN has " + std::to_string(token.size()) + " bytes; at least " +
                  std::to_string(internal::net::kMinTokenBytes) + " are needed");
  return token;
}

std::string token_of_file(const std::string& path) {
  try {
    return internal::net::read_token_file(path);
  } catch (const Error& e) {
    throw_invalid("[launch] TROUPE_TOKEN_FILE: " + e.message());
  }
}

std::optional<std::string> from_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

std::optional<LaunchEnvironment> LaunchEnvironment::read(const Lookup& lookup) {
  LaunchEnvironment e;  // a wrong switch is refused in a program that runs alone, too
  e.polling = parse_switch("TROUPE_POLLING", lookup("TROUPE_POLLING"));
  e.callers_read = parse_switch("TROUPE_CALLERS_READ", lookup("TROUPE_CALLERS_READ"));
  e.shared_memory = parse_switch("TROUPE_SHARED_MEMORY", lookup("TROUPE_SHARED_MEMORY"));
  for (const auto& [rank_name, world_name] : kDialects) {
    const auto rank = lookup(rank_name), world = lookup(world_name);
    if (!rank && !world) continue;
    if (!rank || !world)
      throw_invalid("[launch] " + std::string(rank ? rank_name : world_name) + " is set but " +
                    (rank ? world_name : rank_name) +
                    " is not, or is empty: set both, or neither to run alone");
    e.source = rank_name;
    e.rank = parse(rank_name, *rank, 0, kMaxWorld - 1);
    e.world = parse(world_name, *world, 1, kMaxWorld);
    if (e.rank >= e.world)
      throw_invalid("[launch] " + std::string(rank_name) + "=" + *rank + " is not below " + world_name + "=" +
                    *world);
    if (auto address = lookup("TROUPE_ADDRESS")) {
      try {
        (void)internal::net::parse_address(*address);
      } catch (const Error&) {
        refuse("TROUPE_ADDRESS", *address, internal::net::kAddressForms);
      }
      e.address = *address;
    } else if (auto host = lookup("MASTER_ADDR"), port = lookup("MASTER_PORT"); host && port) {
      const int given = parse_port("MASTER_PORT", *port);
      e.address = tcp_address("MASTER_ADDR", *host, *port);
      if (lookup("TORCHELASTIC_USE_AGENT_STORE") == "True") {
        const std::string at = e.address.substr(0, e.address.rfind(':') + 1);
        e.address = at + std::to_string(given == 65535 ? given - 1 : given + 1);
        e.address_note = "torchrun's agent listens on MASTER_PORT (" + *port +
                         ") itself, so worker 0 takes the port beside it: set TROUPE_ADDRESS=" + at +
                         "PORT, the same for all workers, to choose another";
      }
    } else if (e.world > 1) {
      throw_invalid("[launch] " + std::string(rank_name) +
                    " is set, but not where worker 0 is: set TROUPE_ADDRESS, or "
                    "MASTER_ADDR and MASTER_PORT");
    }
    if (auto token = lookup("TROUPE_TOKEN"))
      e.token = checked_token(*token);
    else if (auto file = lookup("TROUPE_TOKEN_FILE"))
      e.token = token_of_file(*file);
    else if (e.world > 1)
      throw_invalid(
          "[launch] no cluster token: set TROUPE_TOKEN_FILE to a file that only you can read (head -c 32 "
          "/dev/urandom | base64 > token; chmod 600 token), the same for all workers");
    if (auto bind = lookup("TROUPE_BIND")) {
      (void)tcp_address("TROUPE_BIND", *bind, "0");
      e.bind = *bind;
    }
    if (auto seconds = lookup("TROUPE_JOIN_TIMEOUT"))
      e.join_timeout = parse_seconds("TROUPE_JOIN_TIMEOUT", *seconds);
    return e;
  }
  return std::nullopt;
}

std::string LaunchEnvironment::bind_address() const {
  return tcp_address("TROUPE_BIND", bind.empty() ? "127.0.0.1" : bind, "0");
}

std::optional<LaunchEnvironment> LaunchEnvironment::read() { return read(from_process); }

int LaunchEnvironment::workers(const Lookup& lookup) {
  const auto text = lookup("TROUPE_WORKERS");
  if (!text) return 3;
  return static_cast<int>(parse("TROUPE_WORKERS", *text, 1, 1024));
}

LeakCheck LaunchEnvironment::leak_check() {
  const std::string value = from_process("TROUPE_LEAK_CHECK").value_or("warn");
  if (value == "warn") return LeakCheck::warn;
  if (value == "off") return LeakCheck::off;
  if (value == "error") return LeakCheck::error;
  refuse("TROUPE_LEAK_CHECK", value, "off, warn or error");
}

int LaunchEnvironment::workers() { return workers(from_process); }

}  // namespace troupe
