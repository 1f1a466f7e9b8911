#include "llm/serve_model.h"

#include <fmt/format.h>

#include <atomic>

#include "core/base/error.h"
#include "llm/adapters.h"
#include "llm/pretrained.h"

namespace troupe::llm {

namespace {

// No two texts of a cluster have the same: numbers of workers are never given twice.
uint64_t text_number(const Here& here) {
  static std::atomic<uint64_t> last{0};
  return (uint64_t{here.id()} << 32) + ++last;
}

}  // namespace

std::optional<int64_t> Generation::next() {
  while (given_ == got_.size()) {
    if (ended_) return {};
    const auto more = server_.with_timeout(Duration::zero())
                          .call<&ModelServer::more>(text_, static_cast<int64_t>(given_))
                          .get();
    got_.insert(got_.end(), more.begin(), more.end());
    if (!more.empty()) continue;
    got_ = whole_.get();
    ended_ = true;
  }
  return got_[given_++];
}

std::vector<int64_t> Generation::rest() {
  const std::vector<int64_t> all = whole_.get();
  std::vector<int64_t> out(all.begin() + static_cast<std::ptrdiff_t>(given_), all.end());
  got_ = all, given_ = all.size(), ended_ = true;
  return out;
}

Generation ServedModel::generate(const Here& here, const std::vector<int64_t>& prompt,
                                 const GenerateOptions& options, Duration timeout) const {
  const uint64_t text = text_number(here);
  return {server, text, server.with_timeout(timeout).call<&ModelServer::generate>(text, prompt, options)};
}

Future<std::vector<int64_t>> ServedModel::write(const Here& here, const std::vector<int64_t>& prompt, const GenerateOptions& options,
                                               Duration timeout) const {
  return server.with_timeout(timeout).call<&ModelServer::generate>(text_number(here), prompt, options);
}

ServedModel serve_model(const Here& here, const Mesh& mesh, const std::string& folder,
                        const ServeOptions& options) {
  if (mesh.dims().size() != 1 || mesh.dims()[0].name != "tp")
    throw_invalid(
        "[serve_model] the mesh has other dimensions than \"tp\": a model is served by ranks of its layers");
  DecoderOptions model = read_config(folder);
  if (options.dtype) model.dtype = *options.dtype;
  if (!options.adapters.empty()) model.lora = read_adapter_config(options.adapters);
  const auto workers = parallel::workers_of(mesh);
  ServedModel served(here.spawn<ModelServer>(workers.at(0), mesh, model, options.limits));
  const std::vector<AnyRef> ranks = served.server.call<&ModelServer::ranks>().get();
  load_pretrained(ranks, folder);
  if (!options.adapters.empty()) load_adapters(ranks, options.adapters);
  return served;
}

}  // namespace troupe::llm
