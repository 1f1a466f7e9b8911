#include "net/socket/loop/sockets.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include "core/base/error.h"

namespace troupe::internal::net {
namespace {

constexpr int kUnixBuffer = 1 << 20;

SockAddr unix_address(const Address& a) {
  SockAddr out;
  auto* un = reinterpret_cast<sockaddr_un*>(&out.storage);
  un->sun_family = AF_UNIX;
  const bool abstract = a.kind == Address::Kind::abstract;  // a leading NUL, and no NUL at the end
  std::memcpy(un->sun_path + abstract, a.name.data(), a.name.size());
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + a.name.size() + 1);
  return out;
}

Address tcp_address(const sockaddr* sa, socklen_t size) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "0";
  getnameinfo(sa, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return {Address::Kind::tcp, host, static_cast<uint16_t>(std::atoi(port))};
}

[[noreturn]] void cannot_listen(const Address& a, const std::string& why) {
  throw_error(ErrorKind::failed, fmt::format("[net] cannot listen on {}: {}", a.str(), why));
}

// True if nobody listens on the path any more; the socket file is then removed.
bool remove_dead_socket(const Address& a, const SockAddr& at) {
  struct stat info{};
  if (lstat(a.name.c_str(), &info) != 0) return errno == ENOENT;
  if (!S_ISSOCK(info.st_mode)) cannot_listen(a, "the file exists and is no socket");
  const Descriptor probe = open_socket(AF_UNIX);
  if (!probe || ::connect(probe.get(), at.get(), at.size) == 0 || errno != ECONNREFUSED) return false;
  return unlink(a.name.c_str()) == 0 || errno == ENOENT;
}

Resolved ask(const Address& a, int flags) {
  Resolved out;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  if (const int rc = getaddrinfo(a.name.c_str(), std::to_string(a.port).c_str(), &hints, &found); rc != 0) {
    out.why = rc == EAI_SYSTEM ? errno_text(errno) : gai_strerror(rc);
    return out;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* i = found; i; i = i->ai_next) {
    SockAddr s;
    std::memcpy(&s.storage, i->ai_addr, i->ai_addrlen);
    s.size = i->ai_addrlen;
    out.found.push_back(s);
  }
  return out;
}

bool bind_to(int fd, const SockAddr& at) { return ::bind(fd, at.get(), at.size) == 0; }

}  // namespace

// (To see whether an object is one, UBSan opens a pipe: wrong where descriptors have run out.)
__attribute__((no_sanitize("vptr"))) std::string errno_text(int error) {
  return std::generic_category().message(error);
}

Resolved resolve_numeric(const Address& a) {
  if (a.kind != Address::Kind::tcp) return {{unix_address(a)}, ""};
  return ask(a, AI_NUMERICHOST);
}

void resolve_elsewhere(const Address& a, std::function<void(Resolved)> answered) {
  try {
    std::thread([a, answered] { answered(ask(a, 0)); }).detach();
  } catch (const std::system_error& e) {
    answered({{}, std::string("no thread can be started to ask for its name: ") + e.what()});
  }
}

Resolved resolve(const Address& a, Duration limit) {
  Resolved at_once = resolve_numeric(a);
  if (!at_once.found.empty()) return at_once;
  const auto answer = std::make_shared<std::promise<Resolved>>();
  auto future = answer->get_future();
  resolve_elsewhere(a, [answer](Resolved r) { answer->set_value(std::move(r)); });
  if (future.wait_for(limit) == std::future_status::ready) return future.get();
  return {{},
          fmt::format("no name server said what {} is within {:g} s", a.name,
                      std::chrono::duration<double>(limit).count())};
}

Descriptor open_socket(int family) {
  Descriptor fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd) tune(fd.get());
  return fd;
}

void tune(int fd) {
  const int on = 1, off = 0;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off);  // heartbeats of our own
  // A Unix socket holds 208 KiB by default, which costs a wake-up each; TCP sizes itself. The system may give
  // less.
  if (is_unix(fd)) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
}

bool is_unix(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

Descriptor listen_on(const Address& address, Address& actual, Duration limit) {
  auto [candidates, why] = resolve(address, limit);
  if (candidates.empty()) cannot_listen(address, why);
  for (const SockAddr& at : candidates) {
    Descriptor fd = open_socket(at.family());
    if (!fd) {
      why = errno_text(errno);
      continue;
    }
    const int on = 1;
    if (address.kind == Address::Kind::tcp) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool bound = bind_to(fd.get(), at);
    if (!bound && errno == EADDRINUSE && address.kind == Address::Kind::path) {
      if (remove_dead_socket(address, at))
        bound = bind_to(fd.get(), at);
      else
        errno = EADDRINUSE;
    }
    if (!bound || ::listen(fd.get(), 1024) != 0) {
      why = errno_text(errno);
      continue;
    }
    actual = address;
    if (address.kind == Address::Kind::tcp) {
      SockAddr got;
      got.size = sizeof got.storage;
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&got.storage), &got.size);
      const Address bound = tcp_address(got.get(), got.size);
      actual.port = bound.port;
      // The host stays as the user wrote it, but a name that others take for this host's must not hide this.
      if (only_on_this_host(bound.str())) actual.name = bound.name;
    }
    return fd;
  }
  cannot_listen(address, why);
}

std::string peer_text(int fd) {
  SockAddr a;
  a.size = sizeof a.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&a.storage), &a.size) != 0) return "somebody";
  if (a.family() != AF_UNIX) return tcp_address(a.get(), a.size).str();
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return "a local process";
  return fmt::format("process {}", who.pid);
}

namespace {

// This end and the other one; false where there is none.
bool ends_of(int fd, SockAddr& here, SockAddr& there) {
  here.size = there.size = sizeof here.storage;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&here.storage), &here.size) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.size) == 0;
}

// An IPv4 address as IPv6 has it, and the port; zeros for others.
std::array<uint8_t, 18> tcp_end(const SockAddr& a) {
  std::array<uint8_t, 18> out{};
  if (a.family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(a.storage);
    out[10] = out[11] = 0xff;
    std::memcpy(&out[12], &v4.sin_addr, 4);
    std::memcpy(&out[16], &v4.sin_port, 2);
  } else if (a.family() == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(a.storage);
    std::memcpy(out.data(), &v6.sin6_addr, 16);
    std::memcpy(&out[16], &v6.sin6_port, 2);
  }
  return out;
}

}  // namespace

uint64_t path_of(int fd, bool here) {
  SockAddr own, other;
  if (!ends_of(fd, own, other) || own.family() == AF_UNIX) return 0;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const SockAddr* end : {here ? &own : &other, here ? &other : &own})
    for (const uint8_t byte : tcp_end(*end)) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

uint16_t port_beside(int listener, int fd) {
  SockAddr at, own;
  at.size = own.size = sizeof at.storage;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&at.storage), &at.size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.size) != 0 || at.family() == AF_UNIX ||
      own.family() == AF_UNIX)
    return 0;
  const auto a = tcp_end(at), b = tcp_end(own);
  const bool any = std::all_of(a.begin() + (at.family() == AF_INET ? 12 : 0), a.begin() + 16,
                               [](uint8_t byte) { return byte == 0; });
  const bool same = std::equal(a.begin(), a.begin() + 16, b.begin());
  if (!same && !(any && (at.family() == AF_INET6 || own.family() == AF_INET))) return 0;
  return static_cast<uint16_t>(a[16] << 8 | a[17]);
}

bool is_within_host(int fd) {
  SockAddr here, there;
  if (!ends_of(fd, here, there)) return false;
  if (here.family() == AF_INET) {
    const auto a = reinterpret_cast<const sockaddr_in*>(&here.storage)->sin_addr.s_addr,
               b = reinterpret_cast<const sockaddr_in*>(&there.storage)->sin_addr.s_addr;
    return a == b || (ntohl(a) >> 24) == IN_LOOPBACKNET || (ntohl(b) >> 24) == IN_LOOPBACKNET;
  }
  if (here.family() == AF_INET6) {
    const in6_addr &a = reinterpret_cast<const sockaddr_in6*>(&here.storage)->sin6_addr,
                   &b = reinterpret_cast<const sockaddr_in6*>(&there.storage)->sin6_addr;
    return IN6_ARE_ADDR_EQUAL(&a, &b);
  }
  return here.family() == AF_UNIX;
}

bool is_self_connected(int fd) {
  SockAddr a, b;
  return ends_of(fd, a, b) && a.family() != AF_UNIX && a.size == b.size &&
         std::memcmp(&a.storage, &b.storage, a.size) == 0;
}

}  // namespace troupe::internal::net
