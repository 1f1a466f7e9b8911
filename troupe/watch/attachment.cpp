#include "troupe/watch/attachment.h"

#include <nlohmann/json.hpp>

#include "actors/worker/guests.h"
#include "core/base/process_facts.h"
#include "core/base/random_bytes.h"
#include "net/protocol/standing.h"

namespace troupe::internal::watch {

WorkerId new_guest() {
  const uint64_t random = std::stoull(random_hex(7), nullptr, 16);
  return net::kFirstGuest + static_cast<WorkerId>(random % (net::kEndOfGuests - net::kFirstGuest));
}

Attachment Attachment::to(actors::Worker& worker, const std::string& job,
                          const LaunchEnvironment* environment) {
  if (!environment || environment->world < 2)
    throw_invalid(
        "the workers of this job share the memory of one process, where no guest can come in: start it with "
        "troupe run -n 3 PROGRAM, or look at it with troupe ps, top and waits");
  const LaunchEnvironment& e = *environment;
  Attachment out{.job = job, .program = program_name(), .id = new_guest()};
  while (worker.members().find(out.id)) out.id = new_guest();
  out.pass = net::guest_pass(e.token, e.job);
  out.control = worker.extension<actors::Guests>()->control();
  out.members = worker.members().all();
  out.shared_memory = e.shared_memory, out.encryption = e.encryption, out.certificate = e.certificate;
  return out;
}

std::string Attachment::json() const {
  auto all = nlohmann::json::array();
  for (const actors::Member& m : members)
    all.push_back({{"id", m.id}, {"name", m.name}, {"host", m.host}, {"addresses", m.addresses}});
  return nlohmann::json{{"job", job},
                        {"program", program},
                        {"id", id},
                        {"pass", pass},
                        {"control", control},
                        {"members", all},
                        {"shared_memory", shared_memory},
                        {"encryption", static_cast<int>(encryption)},
                        {"certificate", {certificate.chain, certificate.key, certificate.authorities}}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Attachment Attachment::parse(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.contains("error")) throw_error(ErrorKind::failed, json.at("error").get<std::string>());
    Attachment out;
    json.at("job").get_to(out.job), json.at("program").get_to(out.program);
    json.at("id").get_to(out.id), json.at("pass").get_to(out.pass), json.at("control").get_to(out.control);
    for (const auto& m : json.at("members"))
      out.members.push_back({m.at("id").get<WorkerId>(), m.at("name").get<std::string>(),
                             m.at("host").get<std::string>(),
                             m.at("addresses").get<std::vector<std::string>>()});
    json.at("shared_memory").get_to(out.shared_memory);
    out.encryption = static_cast<Encryption>(json.at("encryption").get<int>());
    const auto& certificate = json.at("certificate");
    certificate.at(0).get_to(out.certificate.chain), certificate.at(1).get_to(out.certificate.key);
    certificate.at(2).get_to(out.certificate.authorities);
    return out;
  } catch (const nlohmann::json::exception& e) {
    throw_error(ErrorKind::failed, std::string("the job's answer cannot be read: ") + e.what());
  }
}

}  // namespace troupe::internal::watch
