#include "troupe/launch_environment.h"

#include <charconv>
#include <cstdlib>

#include "core/base/error.h"
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

uint32_t parse(const char* name, const std::string& text) {
  uint32_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n > kMaxWorld)
    throw_invalid("[launch] " + std::string(name) + " is '" + text + "'; expected a whole number up to " +
                  std::to_string(kMaxWorld));
  return n;
}

uint16_t parse_port(const char* name, const std::string& text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    throw_invalid("[launch] " + std::string(name) + " is '" + text + "'; expected a port, 1 to 65535");
  return port;
}

Duration parse_seconds(const char* name, const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0 && seconds <= 1e6))
    throw_invalid("[launch] " + std::string(name) + " is '" + text +
                  "'; expected seconds, above 0 and up to 1000000");
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

bool parse_switch(const char* name, const std::optional<std::string>& text) {
  if (!text || *text == "1") return true;
  if (*text == "0") return false;
  throw_invalid("[launch] " + std::string(name) + " is '" + *text + "'; expected 0 or 1");
}

std::optional<std::string> from_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

std::optional<Environment> Environment::read(const Lookup& lookup) {
  Environment e;  // a wrong switch is refused in a program that runs alone, too
  e.polling = parse_switch("TROUPE_POLLING", lookup("TROUPE_POLLING"));
  e.callers_read = parse_switch("TROUPE_CALLERS_READ", lookup("TROUPE_CALLERS_READ"));
  e.shared_memory = parse_switch("TROUPE_SHARED_MEMORY", lookup("TROUPE_SHARED_MEMORY"));
  for (const auto& [rank_name, world_name] : kDialects) {
    const auto rank = lookup(rank_name), world = lookup(world_name);
    if (!rank && !world) continue;
    if (!rank || !world)
      throw_invalid("[launch] " + std::string(rank ? rank_name : world_name) + " is set but " +
                    (rank ? world_name : rank_name) + " is not: set both, or neither to run alone");
    e.source = rank_name;
    e.rank = parse(rank_name, *rank);
    e.world = parse(world_name, *world);
    if (e.rank >= e.world)
      throw_invalid("[launch] " + std::string(rank_name) + "=" + *rank + " is not below " + world_name + "=" +
                    *world);
    if (auto address = lookup("TROUPE_ADDRESS")) {
      e.address = *address;
    } else if (auto host = lookup("MASTER_ADDR"), port = lookup("MASTER_PORT"); host && port) {
      const std::string at =
          "tcp:" + (host->find(':') == std::string::npos ? *host : "[" + *host + "]") + ":";
      e.address = at + *port;
      if (lookup("TORCHELASTIC_USE_AGENT_STORE") == "True") {
        const int taken = parse_port("MASTER_PORT", *port);
        e.address = at + std::to_string(taken == 65535 ? taken - 1 : taken + 1);
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
      e.token = *token;
    else if (auto file = lookup("TROUPE_TOKEN_FILE"))
      e.token = internal::net::read_token_file(*file);
    else if (e.world > 1)
      throw_invalid(
          "[launch] no cluster token: set TROUPE_TOKEN_FILE to a file that only you can read (head -c 32 "
          "/dev/urandom | base64 > token; chmod 600 token), the same for all workers");
    if (e.world > 1 && e.token.size() < internal::net::kMinTokenBytes)
      throw_invalid("[launch] the cluster token has " + std::to_string(e.token.size()) + " bytes; at least " +
                    std::to_string(internal::net::kMinTokenBytes) + " are needed");
    if (auto bind = lookup("TROUPE_BIND")) e.bind = *bind;
    if (auto seconds = lookup("TROUPE_JOIN_TIMEOUT"))
      e.join_timeout = parse_seconds("TROUPE_JOIN_TIMEOUT", *seconds);
    return e;
  }
  return std::nullopt;
}

std::optional<Environment> Environment::read() { return read(from_process); }

int Environment::workers(const Lookup& lookup) {
  const auto text = lookup("TROUPE_WORKERS");
  if (!text) return 3;
  const uint32_t n = parse("TROUPE_WORKERS", *text);
  if (n < 1 || n > 1024) throw_invalid("[launch] TROUPE_WORKERS is " + *text + "; expected 1 to 1024");
  return static_cast<int>(n);
}

int Environment::workers() { return workers(from_process); }

}  // namespace troupe
