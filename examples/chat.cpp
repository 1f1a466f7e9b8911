// A served language model writes on behind what you type: `troupe run -n 3 chat FOLDER`, over the ranks of as many workers.
#include <troupe/llm.h>
#include <troupe/tools/program.h>

#include <iostream>
using namespace troupe;

// Writes a text as it comes, a character when all of its bytes are there.
void write(llm::ServedModel& model, const Here& here, const llm::Tokenizer& tokenizer, const std::string& prompt,
           const llm::GenerateOptions& options) {
  llm::Generation text = model.generate(here, tokenizer.encode(prompt), options);
  llm::TextStream shown(tokenizer);
  while (const auto token = text.next()) std::cout << shown.add(*token) << std::flush;
  std::cout << shown.end() << std::endl;
}

int main(int argc, char** argv) {
  tools::Flags flags("chat", "Serves a language model and writes on behind what you type, a line at a time.");
  auto& prompt = flags.text("--prompt", "", "write on behind this text, and end");
  auto& adapters = flags.text("--adapters", "", "folder of adapters that go with the model");
  auto& most = flags.whole("--tokens", 100, "that are written at most", {1, 1e6});
  auto& temperature = flags.number("--temperature", 0.8, "0: the most probable token", {0, 100});
  auto& top_p = flags.number("--top-p", 0.95, "of the most probable tokens that have this much together", {0.001, 1});
  auto& pages = flags.whole("--pages", 512, "of the cache, 16 tokens each", {1, 1e7});
  auto& seed = flags.seed("of what is drawn");
  auto& folder = flags.file("FOLDER", "the model: config.json, weights, tokenizer.json");
  if (auto code = flags.parse(argc, argv)) return *code;

  return launch([&](Cluster& cluster) {
    const llm::Tokenizer tokenizer(folder);
    llm::GenerateOptions options{.max_new_tokens = most, .temperature = temperature, .top_p = top_p, .seed = seed};
    for (const char* end : {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "<|end|>"})
      if (const auto id = tokenizer.special(end)) options.stop.push_back({*id});
    const Mesh ranks(cluster, {{"tp", cluster.workers().size()}});
    auto model = llm::serve_model(cluster.here(), ranks, folder,
                                  {.adapters = adapters, .limits = {.cache = {.pages = pages}}});
    if (!prompt.empty()) return write(model, cluster.here(), tokenizer, prompt, options);
    for (std::string line; std::cout << "> " << std::flush, std::getline(std::cin, line); ++options.seed) {
      if (line.empty()) continue;
      try {
        write(model, cluster.here(), tokenizer, line, options);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::invalid) throw;
        std::cout << e.what() << std::endl;
      }
    }
    std::cout << std::endl;
  });
}
