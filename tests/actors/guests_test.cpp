// A guest of the cluster meets its workers, and may call nothing of theirs that is not open to guests.
#include "actors/worker/guests.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <regex>
#include <utility>

#include "core/base/log.h"
#include "core/value/owned_number.h"
#include "tests/support/folder.h"
#include "tests/support/places.h"
#include "tests/support/two_workers.h"

using namespace troupe;
using namespace troupe::internal;

namespace {

constexpr const char* kWithoutControl = ": the job was started without --control of troupe run";

template <size_t N>
bool lists(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr auto kAnyTime = std::chrono::seconds(60);

struct Ledger : Actor {
  void add(int64_t n) { sum += n; }
  int64_t total() { return sum; }
  int64_t sum = 0;
  static constexpr auto remote = methods<&Ledger::add, &Ledger::total>;
};

class Guest : public net::Events {
 public:
  explicit Guest(actors::Worker& host, WorkerId id = net::kFirstGuest)
      : transport_(net::make_socket_transport(
            {{id, "guest"}, net::guest_pass("a token for two workers", ""), {}}, *this)) {
    link = transport_->connect(host.members().find(host.id())->addresses.front()).get();
  }
  ~Guest() override { transport_.reset(); }
  void on_accepted(std::shared_ptr<net::Connection>) override {}
  void on_message(net::Connection&, net::Message message) override {
    std::lock_guard lock(mutex_);
    answers_.push_back(std::get<net::Reply>(net::decode(std::move(message))));
    news_.notify_all();
  }
  void on_closed(net::Connection&, const Error& why) override {
    std::lock_guard lock(mutex_);
    ended_ = why.message();
    news_.notify_all();
  }
  /// What a call is answered with, if it is refused.
  std::string refusal(const ObjectId& target, const std::string& method, uint64_t context = 0) {
    net::Call call;
    call.context = context;
    call.id = ++calls_;
    call.target = target;
    call.method = net::method_id(method);
    link->send(net::encode(call));
    std::unique_lock lock(mutex_);
    REQUIRE(news_.wait_for(lock, kAnyTime, [&] { return answers_.size() == calls_ || !ended_.empty(); }));
    REQUIRE(ended_ == "");
    CHECK(answers_.back().id == calls_);
    const auto& result = answers_.back().result;
    return result.ok() ? "no refusal" : result.error().message();
  }
  /// Why the connection ends.
  std::string end() {
    std::unique_lock lock(mutex_);
    REQUIRE(news_.wait_for(lock, kAnyTime, [&] { return !ended_.empty(); }));
    return ended_;
  }
  std::shared_ptr<net::Connection> link;

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<net::Reply> answers_;
  std::string ended_;
  uint64_t calls_ = 0;
  std::unique_ptr<net::Transport> transport_;
};

// All messages that are declared, as tests/messages.py finds them.
std::vector<std::string> declared_messages() {
  const std::string page =
      testing::content(std::filesystem::path(testing::kSourceFolder) / "docs/explanation/messages.md");
  const size_t begin = page.find("<!-- messages: ");
  const std::string table = page.substr(begin, page.find("<!-- end of messages -->") - begin);
  const std::regex row(R"(\n\| `([^`]+)` \|)");
  std::vector<std::string> names;
  for (std::sregex_iterator at(table.begin(), table.end(), row), end; at != end; ++at)
    names.push_back((*at)[1]);
  return names;
}

}  // namespace

TEST_CASE("a guest may call none of the declared messages but those that are open to guests") {
  testing::TwoWorkers two(hosting<Ledger>());
  const auto ledger = two.spawn<Ledger>();
  ledger.call<&Ledger::add>(7).get();
  Guest guest(two.worker(1));
  CHECK(guest.link->peer().name == "w1");
  const ObjectId worker{1, kNoWorker, 0}, actor = two.worker(1).actors().all().front()->id();
  auto names = declared_messages();
  CHECK(names.size() > 80);
  std::erase_if(names, [](const std::string& name) { return lists(actors::kOpenToGuests, name); });
  size_t served = 0;
  for (const std::string& name : names) {
    INFO(name);
    const std::string text = guest.refusal(worker, name);
    CHECK_THAT(text, Catch::StartsWith("[call] guest is a guest of the cluster, and may not call "));
    const bool control = lists(actors::kOpenToControl, name);
    served += text.ends_with(" " + name + (control ? kWithoutControl : ""));
    CHECK_THAT(guest.refusal(actor, name), Catch::StartsWith("[call] guest is a guest of the cluster") &&
                                               Catch::EndsWith(kWithoutControl));
  }
  CHECK(served > 30);  // so those were services of this worker
  for (const char* method : {"add", "total", "Ledger::add", "no such thing"}) {
    CHECK_THAT(guest.refusal(actor, method), Catch::EndsWith(kWithoutControl));
    CHECK_THAT(guest.refusal(worker, method), Catch::EndsWith("and may not call that"));
  }
  CHECK(ledger.call<&Ledger::total>().get() == 7);
}

TEST_CASE("a guest of a job for control may call methods of actors, and the services that control takes") {
  testing::TwoWorkers two(hosting<Ledger>());
  const auto ledger = two.spawn<Ledger>();
  ledger.call<&Ledger::add>(7).get();
  two.worker(1).extension<actors::Guests>()->allow_control();
  Guest guest(two.worker(1));
  const ObjectId worker{1, kNoWorker, 0}, actor = two.worker(1).actors().all().front()->id();
  size_t refused = 0;
  for (const std::string& name : declared_messages()) {
    INFO(name);
    if (lists(actors::kOpenToGuests, name) || lists(actors::kOpenToControl, name)) continue;
    const std::string text = guest.refusal(worker, name);
    CHECK_THAT(text, Catch::StartsWith("[call] guest is a guest of the cluster, and may not call "));
    refused += text.ends_with(" " + name);
  }
  CHECK(refused >= 21);  // so those were services of this worker
  static std::mutex logging;
  static std::string lines;
  log::set_sink([](log::Level, const std::string& line) {
    const std::lock_guard lock(logging);
    lines += line + "\n";
  });
  const auto logged = [] {
    const std::lock_guard lock(logging);
    return std::exchange(lines, {});
  };
  CHECK(guest.refusal(actor, "total") == "no refusal");
  CHECK(guest.refusal(worker, "ref.names") == "no refusal");
  CHECK_THAT(logged(), Catch::StartsWith("[control] call 1 of a guest, by guest: ") &&
                           Catch::Contains("Ledger::total on w1 (") && Catch::EndsWith("Ledger#0:1)\n"));
  for (int i = 0; i < 98; ++i) CHECK(guest.refusal(actor, "total") == "no refusal");
  CHECK_THAT(logged(), Catch::Matches("\\[control\\] call 10 of a guest, by guest: [^\n]*Ledger::total on w1 "
                                      "[^\n]*, for the 10th time\n"));
  CHECK(guest.refusal(actor, "no such thing") != "no refusal");
  CHECK_THAT(logged(), Catch::StartsWith("[control] call 100 of a guest, by guest: that\n"));
  const uint64_t own = owned_number(net::kFirstGuest, 5);
  CHECK_THAT(guest.refusal(actor, "total", own),
             Catch::EndsWith(" in a context: gradients take a claim of the worker"));
  two.worker(1).extension<actors::Guests>()->admit(net::kFirstGuest);
  (void)logged();
  CHECK(guest.refusal(actor, "total", own) == "no refusal");  // the 100th
  log::set_sink(nullptr);
  CHECK(logged() == "");
  CHECK_THAT(guest.refusal(actor, "total", /*context=*/5),
             Catch::EndsWith(" in a context of another worker"));
}

TEST_CASE("whatever else a guest sends ends its connection, and nobody else's") {
  testing::TwoWorkers two(hosting<Ledger>());
  const auto ledger = two.spawn<Ledger>();
  net::Call unanswered;
  unanswered.target = {1, kNoWorker, 0};
  unanswered.method = net::method_id("cluster.gone");
  WorkerId id = net::kFirstGuest;
  for (const net::Packet& packet : {net::Packet(unanswered), net::Packet(net::Reply{1, Value(int64_t{3})}),
                                    net::Packet(net::Cancel{1}), net::Packet(net::Started{1})}) {
    Guest guest(two.worker(1), id++);  // the end of the one before may not have been heard of
    std::visit([&](const auto& p) { guest.link->send(net::encode(p)); }, packet);
    CHECK_THAT(guest.end(), Catch::Contains("is a guest of the cluster, and may not call"));
  }
  ledger.call<&Ledger::add>(5).get();
  CHECK(ledger.call<&Ledger::total>().get() == 5);
  CHECK(two.worker(1).members().all().size() == 2);
}
