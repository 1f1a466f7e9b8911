#include "tools/dashboard/dashboard.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstring>
#include <iostream>

#include "core/base/descriptor.h"
#include "core/base/error.h"
#include "core/base/random_bytes.h"
#include "tools/flags/flags.h"
#include "tools/watch/asking.h"

namespace troupe::tools {
namespace {

struct Served {
  RunningJob job;
  std::string key;   // who knows it may ask: other users of the host can reach the port, too
  std::string host;  // "127.0.0.1:4711"
};

struct HttpAnswer {
  unsigned code = MHD_HTTP_OK;
  std::string type = "application/json", body;
};

// Compares all of it, whatever differs first.
bool same(const std::string& a, const char* b) {
  if (!b || std::strlen(b) != a.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

HttpAnswer answer_to(const Served& served, MHD_Connection* connection, const std::string& path,
                     const std::string& method) {
  if (method != "GET") return {MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", "only GET\n"};
  // A page of somebody else that a browser shows has another name of this host.
  const char* host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
  const char* key = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "key");
  if (!host || served.host != host || !same(served.key, key))
    return {MHD_HTTP_FORBIDDEN, "text/plain", "open the address that `troupe dashboard` has printed\n"};
  if (path == "/") return {MHD_HTTP_OK, "text/html; charset=utf-8", dashboard_page()};
  double seconds = 5;
  std::string question;
  if (path == "/report" || path == "/waits") question = path.substr(1);
  if (path == "/trace") question = "trace 0.3", seconds = 30;
  if (question.empty()) return {MHD_HTTP_NOT_FOUND, "text/plain", "no such page\n"};
  std::string said = served.job.ask(question, seconds);
  if (said.empty()) said = R"({"error": "the job does not answer"})";
  return {MHD_HTTP_OK, "application/json", std::move(said)};
}

MHD_Result handle(void* of, MHD_Connection* connection, const char* path, const char* method, const char*,
                  const char*, size_t* upload, void**) {
  *upload = 0;
  HttpAnswer answer;
  try {
    answer = answer_to(*static_cast<const Served*>(of), connection, path, method);
  } catch (...) {
    answer = {MHD_HTTP_INTERNAL_SERVER_ERROR, "text/plain", std::string(current_error().what()) + "\n"};
  }
  MHD_Response* response =
      MHD_create_response_from_buffer(answer.body.size(), answer.body.data(), MHD_RESPMEM_MUST_COPY);
  if (!response) return MHD_NO;
  for (const auto& [name, value] :
       {std::pair("Content-Type", answer.type.c_str()), std::pair("Cache-Control", "no-store"),
        std::pair("Referrer-Policy", "no-referrer"),
        std::pair("Content-Security-Policy", "default-src 'self' 'unsafe-inline'; frame-ancestors 'none'")})
    MHD_add_response_header(response, name, value);
  const MHD_Result queued = MHD_queue_response(connection, answer.code, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

int dashboard_main(const std::vector<std::string>& arguments) {
  Asking asking{.verb = "dashboard"};
  int64_t port = 0;
  Flags flags("troupe dashboard", "Serves a page about a job that runs, for a browser on this host.");
  flags.add("-p,--port", port, "of 127.0.0.1; 0: one that is free", {0, 65535});
  flags.rest("job", asking.which, "what its name, or its program's, begins with; none: the only one");
  flags.footer(
      "The address that it prints has a key: who has not that is refused. From another host:\n"
      "ssh -L 8000:127.0.0.1:8000 HOST troupe dashboard -p 8000");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  if (auto code = asking.find(true)) return *code;
  try {
    sigset_t stop;
    sigemptyset(&stop);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&stop, signal);
    pthread_sigmask(SIG_BLOCK, &stop, nullptr);
    const internal::Descriptor signals(signalfd(-1, &stop, SFD_CLOEXEC));
    Served served{asking.jobs[0], internal::random_hex(16), ""};
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Answers wait for the job; four at once, so that a trace keeps nobody waiting.
    MHD_Daemon* const daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD, static_cast<uint16_t>(port), nullptr, nullptr, handle, &served,
        MHD_OPTION_SOCK_ADDR, reinterpret_cast<sockaddr*>(&at), MHD_OPTION_THREAD_POOL_SIZE, 4u,
        MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_CONNECTION_LIMIT, 64u, MHD_OPTION_END);
    if (!daemon)
      throw_error(ErrorKind::failed,
                  fmt::format("port {} of 127.0.0.1 cannot be had: {}", port, std::strerror(errno)));
    const uint16_t actual = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    served.host = fmt::format("127.0.0.1:{}", actual);
    std::cout << "http://" << served.host << "/?key=" << served.key << std::endl;
    pollfd ready{signals.get(), POLLIN, 0};
    while (poll(&ready, 1, 1000) <= 0 && !running_jobs(served.job.job).empty()) {
    }
    MHD_stop_daemon(daemon);
    return 0;
  } catch (const Error& e) {
    std::cerr << "troupe dashboard: " << e.message() << "\n";
    return 1;
  }
}

}  // namespace troupe::tools
