// Links between hosts that are network namespaces, each with its rate, its delay and its losses: this process
// carries the packets. bench/namespaces.py starts it; for root.
//
//   slow_links MBIT DELAY_US LOSSES NAMESPACE...     LOSSES: packets lost of a million
//
// Each namespace gets a device `out` (a TUN), by which 10.79.0.N reaches the others, N counted from 1. Says
// "ready" when they are there, and ends with its standard input.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::unique_ptr<char[]>;

constexpr size_t kHeader = 10;        // before each packet: what is left to do, as virtio has it
constexpr size_t kPacket = 66 << 10;  // the kernel joins small ones
constexpr auto kLongestQueue = std::chrono::milliseconds(50);  // what comes behind it is lost
constexpr int kTurn = 64;                                      // packets of a host before the next one

struct Packet {
  Clock::time_point due;
  Bytes bytes;
  size_t size;
};

struct Host {
  int device = -1;
  Clock::time_point free{};  // its link, to the others
  std::deque<Packet> coming;
};

class Links {
 public:
  Links(double mbit, std::chrono::microseconds delay, uint32_t losses)
      : ns_per_byte_(8000 / mbit), delay_(delay), losses_(losses) {}

  bool add(const std::string& name) {
    const int space = ::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) return false;
    ::close(space);
    const int device = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) return false;
    ifreq wanted{};
    wanted.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    std::strcpy(wanted.ifr_name, "out");
    hosts_.emplace_back().device = device;
    // A packet that is lost is one of the wire's: then none are joined.
    const unsigned joins = losses_ ? TUN_F_CSUM : TUN_F_CSUM | TUN_F_TSO4;
    return ::ioctl(device, TUNSETIFF, &wanted) == 0 && ::ioctl(device, TUNSETOFFLOAD, joins) == 0;
  }

  void run() {
    std::vector<pollfd> waits(1, {STDIN_FILENO, POLLIN, 0});
    for (const Host& host : hosts_) waits.push_back({host.device, POLLIN, 0});
    while (waits[0].revents == 0) {
      for (Host& host : hosts_) take(host);
      const auto now = Clock::now();
      auto next = Clock::time_point::max();
      for (Host& host : hosts_) next = std::min(next, give(host, now));
      const auto left = std::chrono::nanoseconds(next - now).count();
      const timespec until{left / 1'000'000'000, left % 1'000'000'000};
      ::ppoll(waits.data(), waits.size(), next == Clock::time_point::max() ? nullptr : &until, nullptr);
    }
  }

 private:
  void take(Host& from) {
    for (int i = 0; i < kTurn; ++i) {
      if (!spare_) spare_.reset(new char[kPacket]);
      const ssize_t n = ::read(from.device, spare_.get(), kPacket);
      if (n <= 0) return;
      const auto size = static_cast<size_t>(n);
      Host* const to = goes_to(spare_.get(), size);
      const auto now = Clock::now(), begins = std::max(now, from.free);
      if (!to || begins - now > kLongestQueue || random_() % 1'000'000 < losses_) continue;
      from.free =
          begins + std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(size) * ns_per_byte_));
      to->coming.push_back({from.free + delay_, std::move(spare_), size});
      if (!pool_.empty()) spare_ = std::move(pool_.back()), pool_.pop_back();
    }
  }

  // When the next one is due.
  Clock::time_point give(Host& to, Clock::time_point now) {
    while (!to.coming.empty() && to.coming.front().due <= now) {
      Packet& packet = to.coming.front();
      if (::write(to.device, packet.bytes.get(), packet.size) < 0)
        std::perror("slow_links: a packet is lost");
      pool_.push_back(std::move(packet.bytes));
      to.coming.pop_front();
    }
    return to.coming.empty() ? Clock::time_point::max() : to.coming.front().due;
  }

  Host* goes_to(const char* bytes, size_t size) {
    iphdr ip{};
    if (size < kHeader + sizeof ip) return nullptr;
    std::memcpy(&ip, bytes + kHeader, sizeof ip);
    const size_t host = ntohl(ip.daddr) & 255;
    return ip.version == 4 && host >= 1 && host <= hosts_.size() ? &hosts_[host - 1] : nullptr;
  }

  const double ns_per_byte_;
  const std::chrono::microseconds delay_;
  const uint32_t losses_;
  std::mt19937 random_{1};
  std::deque<Host> hosts_;
  std::vector<Bytes> pool_;
  Bytes spare_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return std::fprintf(stderr, "slow_links MBIT DELAY_US LOSSES NAMESPACE...\n"), 2;
  ::prctl(PR_SET_TIMERSLACK, 1);
  Links links(std::atof(argv[1]), std::chrono::microseconds(std::atoi(argv[2])),
              static_cast<uint32_t>(std::atoi(argv[3])));
  for (int i = 4; i < argc; ++i)
    if (!links.add(argv[i])) return std::perror(("slow_links: no TUN in " + std::string(argv[i])).c_str()), 1;
  std::puts("ready");
  std::fflush(stdout);
  links.run();
}
