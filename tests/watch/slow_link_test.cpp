// A link between two processes that lets little through is what everybody waits for.
#include <poll.h>

#include <atomic>
#include <thread>

#include "tests/process/by_hand.h"
#include "tests/watch/watched_job.h"

using namespace troupe::testing;

namespace {

// Stands between a driver and a worker: passes on what comes, to the worker little at a time.
class SlowWay {
 public:
  explicit SlowWay(int driver) : driver_(driver) {
    REQUIRE(listen(at_.fd, 1) == 0);
    thread_ = std::thread([this] { pass_on(); });
  }
  ~SlowWay() {
    over_ = true;
    shutdown(at_.fd, SHUT_RDWR);
    thread_.join();
  }
  int port() const { return at_.number; }

 private:
  static constexpr int kPause = 20;           // milliseconds between pieces
  static constexpr size_t kPiece = 16 << 10;  // bytes to the worker

  void pass_on() {
    const int worker = accept(at_.fd, nullptr, nullptr),
              driver = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = loopback(driver_);
    bool open = worker >= 0 && connect(driver, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    while (open && !over_) {
      poll(nullptr, 0, kPause);
      open = pass(worker, driver, 1 << 20) && pass(driver, worker, kPiece);
    }
    close(worker), close(driver);
  }
  // What is there, up to so many bytes; false at its end.
  static bool pass(int from, int to, size_t most) {
    std::vector<char> bytes(most);
    const ssize_t count = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return false;
    for (ssize_t done = 0; done < count;) {
      const ssize_t n = send(to, bytes.data() + done, static_cast<size_t>(count - done), MSG_NOSIGNAL);
      if (n < 0) return false;
      done += n;
    }
    return true;
  }

  const int driver_;
  const Port at_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a slow link is named, with what waits for it") {
  const Site site;
  const std::string job = "slow-link-" + std::to_string(getpid());
  const SlowWay way(site.port);
  const auto of = [&](int rank) {
    return with(with(site.of(rank, 2), "TROUPE_JOB=" + job), "TROUPE_SHARED_MEMORY=0");
  };
  Variables there = of(1);
  there[3] = "MASTER_PORT=" + std::to_string(way.port());
  Process driver({program("planted"), "link"}, of(0));
  await_driver(site);
  Process worker({program("planted"), "link"}, there);
  driver.await("planted\n");
  for (;;) {
    const auto waits = nlohmann::json::parse(troupe_says({"waits", "--json", job})).at("waits");
    if (waits.empty()) continue;
    const std::string line = waits[0].at("line");
    UNSCOPED_INFO(line);
    if (line.find(" is slow: ") == std::string::npos) continue;
    CHECK(line.find("the link from w0 to ") != std::string::npos);
    CHECK(line.find(" MB wait to be taken") != std::string::npos);
    break;
  }
  worker.signal(SIGKILL);
  driver.signal(SIGKILL);
}
