// The dashboard of a job of real processes: what its server gives to whom, and its page in a browser where
// one is.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/support/skip.h"
#include "tests/watch/watched_job.h"

using namespace troupe::testing;

namespace {

// What the server at 127.0.0.1:`port` answers, head and all.
std::string fetched(int port, const std::string& path, const std::string& host,
                    const std::string& method = "GET") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  const std::string request =
      method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
  REQUIRE(send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::string all;
  char bytes[65536];
  for (ssize_t count; (count = recv(fd, bytes, sizeof bytes, 0)) > 0;)
    all.append(bytes, static_cast<size_t>(count));
  close(fd);
  return all;
}

bool has_dashboard() { return Process({kTroupeCommand, "dashboard", "--help"}).exit_code() == 0; }

}  // namespace

TEST_CASE("the dashboard serves its page and a job's answers to who has the key, and to nobody else") {
  if (!has_dashboard()) return skip_test("troupe was built without its dashboard");
  WatchedJob job("train");
  Process server({kTroupeCommand, "dashboard", job.job});
  server.await("\n");
  const std::string url = server.line("http://127.0.0.1:");
  const int port = std::stoi(url);
  const std::string key = url.substr(url.find("/?") + 1), host = "127.0.0.1:" + std::to_string(port);
  const std::string page = fetched(port, "/" + key, host);
  CHECK(page.starts_with("HTTP/1.1 200"));
  CHECK(page.find("Content-Security-Policy: ") != std::string::npos);
  CHECK(page.find("<title>troupe</title>") != std::string::npos);
  const std::string report = fetched(port, "/report" + key, host);
  CHECK(report.find("\"program\":\"planted\"") != std::string::npos);
  CHECK(fetched(port, "/waits" + key, host).find("\"waits\":[") != std::string::npos);
  CHECK(fetched(port, "/trace" + key, host).find("Half::forward") != std::string::npos);
  CHECK(fetched(port, "/nothing" + key, host).starts_with("HTTP/1.1 404"));
  CHECK(fetched(port, "/report" + key, host, "POST").starts_with("HTTP/1.1 405"));
  for (const std::string& path :
       {std::string("/report"), std::string("/"), "/report?key=" + std::string(32, '0')}) {
    const std::string refused = fetched(port, path, host);
    CHECK(refused.starts_with("HTTP/1.1 403"));
    CHECK(refused.find("planted") == std::string::npos);
  }
  CHECK(fetched(port, "/report" + key, "attacker.example").starts_with("HTTP/1.1 403"));
  job.run.signal(SIGKILL);
  CHECK(server.exit_code() == 0);  // the job has ended
}

TEST_CASE("the dashboard's page shows a job in a browser") {
  if (!has_dashboard() || std::system("chromium --version >/dev/null 2>&1") != 0)
    return skip_test("there is no chromium, or troupe was built without its dashboard");
  WatchedJob job("train");
  Process server({kTroupeCommand, "dashboard", job.job});
  server.await("\n");
  const std::string url = "http://127.0.0.1:" + server.line("http://127.0.0.1:");
  const std::string script = kSourceFolder + std::string("/tests/watch/dashboard_page.py");
  // It waits for as long as it takes; a page that never shows what it should would hang all tests.
  CHECK(std::system(("timeout 300 python3 " + script + " '" + url + "'").c_str()) == 0);
}
