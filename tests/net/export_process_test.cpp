// Blocks lent between processes of a host, of which one stops or ends: what the other one has stays as it
// was, and nothing else does.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/memory/arena.h"
#include "net/socket/shared/exported_blocks.h"
#include "tests/net/socket_support.h"
#include "tests/support/eventually.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using troupe::testing::eventually;
using troupe::testing::skip_test;

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint64_t kKeep = 1, kForget = 2, kSend = 3, kWrite = 4;  // what the child is told, and tells

SocketLimits quick() {
  SocketLimits limits;
  limits.heartbeat = std::chrono::milliseconds(200);
  limits.dead_after = std::chrono::seconds(1);
  return limits;
}

Message filled(uint64_t what, int with, size_t bytes) {
  Message m;
  m.header = {what};
  m.buffers.push_back({Storage::allocate(bytes), 0, bytes});
  std::memset(m.buffers[0].data(), with, bytes);
  return m;
}
bool all_are(const Buffer& b, int value) {
  return std::all_of(b.data(), b.data() + b.size,
                     [&](std::byte x) { return x == static_cast<std::byte>(value); });
}

// Of this process: mappings of arenas, its own included, and open descriptors.
size_t mapped_arenas() {
  std::ifstream maps("/proc/self/maps");
  size_t n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("troupe-arena") != std::string::npos;
  return n;
}
size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// A transport, and a child that is connected to it and has answered the offers.
struct WithChild {
  explicit WithChild(SocketLimits limits = quick()) : transport_(transport(events, "w1", limits)) {
    const auto listener = transport_->listen(fresh_address());
    child.emplace("a child keeps what it is sent and sends what it has", listener->address());
    events.wait_accepted(1);
    for (bool borrowed = false; !borrowed;) {
      tell(filled(kKeep, 0, 100000));
      borrowed = answers().header.at(1);
    }
    tell({.header = {kForget}});
    answers();
    REQUIRE(eventually([] { return allocator_stats().lent == 0; }));
  }
  void tell(Message m) { events.accepted.at(0)->send(std::move(m)); }
  Message answers() {
    events.wait_messages(1);
    Message m;
    events.with([&] {
      m = std::move(events.messages.front());
      events.messages.erase(events.messages.begin());
    });
    return m;
  }
  Recorder events;
  std::optional<Child> child;

 private:
  std::unique_ptr<Transport> transport_;
};

// A memory cgroup for this process that refuses what is beyond its limit. Those of version 2 cannot: there
// the kernel ends a process, as it does by default.
class MemoryCgroup {
 public:
  MemoryCgroup() {
    std::ifstream all("/proc/self/cgroup");
    for (std::string line; std::getline(all, line);)
      if (const size_t at = line.find(":memory:"); at != std::string::npos)
        home_ = "/sys/fs/cgroup/memory" + line.substr(at + sizeof(":memory:") - 1);
    own_ = home_ + "/troupe-test-" + std::to_string(getpid());
    there_ = !home_.empty() && ::mkdir(own_.c_str(), 0700) == 0;
    there_ = there_ && write(own_, "memory.oom_control", "1");
  }
  ~MemoryCgroup() {
    leave();
    ::rmdir(own_.c_str());
  }
  bool there() const { return there_; }
  void enter(size_t limit) {
    REQUIRE(write(own_, "memory.limit_in_bytes", std::to_string(limit)));
    REQUIRE(write(own_, "cgroup.procs", std::to_string(getpid())));
  }
  void leave() { write(home_, "cgroup.procs", std::to_string(getpid())); }

 private:
  static bool write(const std::string& folder, const char* file, const std::string& text) {
    std::ofstream out(folder + "/" + file);
    out << text;
    out.close();
    return bool(out);
  }
  std::string home_, own_;
  bool there_ = false;
};

}  // namespace

TEST_CASE("a child keeps what it is sent and sends what it has", "[.]") {
  const char* address = std::getenv("TROUPE_TEST_ADDRESS");
  if (!address) return;
  Recorder events;
  std::vector<Buffer> kept;
  std::vector<Ref<Storage>> own;
  events.handler = [&](Connection& c, Message& m) {
    const uint64_t what = m.header.at(0);
    if (what == kKeep) {
      kept.push_back(std::move(m.buffers.at(0)));  // not for the Recorder, too
      m.buffers.clear();
      c.send({.header = {kKeep, kept.back().storage->borrowed()}});
    } else if (what == kForget) {
      kept.clear();
      c.send({.header = {kForget}});
    } else if (what == kSend) {
      for (int i = 0; own.size() < 64; ++i) own.push_back(filled(0, 1 + i, kMiB).buffers[0].storage);
      for (int i = 0; i < 4; ++i) {
        Message out;
        out.header = {kSend};
        out.buffers.push_back({own[static_cast<size_t>(i)], 0, kMiB});
        c.send(std::move(out));
      }
    } else if (what == kWrite) {
      for (const auto& s : own) s->own_bytes(), std::memset(s->data(), 0xee, kMiB);
      c.send({.header = {kWrite}});
    }
  };
  const auto t = transport(events, "w8", quick());
  const auto link = t->connect(address).get();
  ::pause();  // until it is killed
}

TEST_CASE("what a receiver had that is killed comes back", "[process]") {
  WithChild w;
  const size_t in_use = allocator_stats().in_use;
  for (int i = 0; i < 16; ++i) {
    w.tell(filled(kKeep, i, kMiB));
    CHECK(w.answers().header.at(1) == 1);
  }
  CHECK(allocator_stats().lent == 16 * kMiB);
  CHECK(allocator_stats().in_use >= in_use + 16 * kMiB);
  w.child->signal(SIGKILL);
  w.events.wait_closed(1);
  CHECK(eventually([] { return allocator_stats().lent == 0; }));
  CHECK(allocator_stats().in_use == in_use);
  CHECK(eventually([] { return mapped_arenas() == 1; }));
}

TEST_CASE("what a receiver has that is stopped stays as it is until it goes on, or is killed", "[process]") {
  for (const int then : {SIGCONT, SIGKILL}) {
    WithChild w;
    Message m = filled(kKeep, 7, kMiB);
    const auto sent = m.buffers[0].storage;
    const std::byte* const block = sent->data();
    w.tell(std::move(m));
    CHECK(w.answers().header.at(1) == 1);
    w.child->signal(SIGSTOP);
    w.events.wait_closed(1);
    CHECK(allocator_stats().lent == kMiB);
    sent->own_bytes();
    CHECK(sent->data() != block);
    CHECK(allocator_stats().lent == kMiB);
    w.child->signal(then);
    CHECK(eventually([] { return allocator_stats().lent == 0; }));
  }
}

TEST_CASE("what came from a process that is killed stays, and nothing else of its memory", "[process]") {
  WithChild w;
  std::vector<Message> came;
  const auto is_lent = [](const Message& m) { return m.buffers[0].storage->borrowed(); };
  do {  // the child may not have our answer to its offer yet, and sends copies
    came.clear();
    w.tell({.header = {kSend}});
    for (int i = 0; i < 4; ++i) came.push_back(w.answers());
  } while (!std::all_of(came.begin(), came.end(), is_lent));
  w.tell({.header = {kWrite}});
  w.answers();
  const size_t arenas = mapped_arenas();
  for (int i = 0; i < 4; ++i) CHECK(all_are(came[static_cast<size_t>(i)].buffers[0], 1 + i));
  came.resize(2);
  w.child->signal(SIGKILL);
  w.events.wait_closed(1);
  CHECK(eventually([&] { return mapped_arenas() == arenas - 1; }));
  for (int i = 0; i < 2; ++i) CHECK(all_are(came[static_cast<size_t>(i)].buffers[0], 1 + i));
}

TEST_CASE("a receiver may be killed at any moment", "[process]") {
  size_t before = 0;
  for (int round = 0; round < 6; ++round) {
    {
      WithChild w;
      std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
        w.child->signal(SIGKILL);
      });
      try {
        for (int i = 0;; ++i) w.tell(filled(kKeep, i, kMiB));
      } catch (const Error& e) {
        CHECK((e.kind() == ErrorKind::disconnected || e.kind() == ErrorKind::overloaded));
      }
      killer.join();
      w.events.wait_closed(1);
    }
    CHECK(eventually([] { return allocator_stats().lent == 0; }));
    CHECK(mapped_arenas() == 1);
    if (round == 0) before = descriptors();
    CHECK(descriptors() == before);
  }
}

TEST_CASE("what there is no memory to share goes by the socket, and one line says so", "[process]") {
  MemoryCgroup cgroup;
  if (!cgroup.there()) return skip_test("nobody may make memory cgroups of version 1 here");
  WithChild w;
  Message m = filled(kKeep, 7, 48 * kMiB);
  m.buffers[0].offset = 4;  // it lies askew, so a copy is shared
  m.buffers[0].size = 40 * kMiB;
  const auto told_borrowed = [&] {
    w.tell(m);
    return w.answers().header.at(1) == 1;
  };
  CHECK(told_borrowed());
  w.tell({.header = {kForget}});
  w.answers();
  REQUIRE(eventually([] { return allocator_stats().lent == 0; }));
  release_cached_memory();
  LogCapture lines;
  internal::log::set_level(internal::log::Level::info);
  cgroup.enter(16 * kMiB);
  CHECK_FALSE(told_borrowed());
  CHECK_FALSE(told_borrowed());
  cgroup.leave();
  internal::log::set_level(internal::log::Level::warning);
  CHECK(lines.count("goes to another process of this host by a socket, since shared memory is full") == 1);
  CHECK(told_borrowed());
}
