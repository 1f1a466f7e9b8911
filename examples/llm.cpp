// A language model is trained from nothing or goes on from a folder of Hugging Face's, whole or by adapters, on any mesh:
// `troupe run -n 4 llm TEXT --model FOLDER --lora 8 --mesh dp=2,tp=2 --out TUNED`.
#include <troupe/data.h>
#include <troupe/llm.h>
#include <troupe/tools/program.h>

#include <filesystem>
using namespace troupe;
namespace fs = std::filesystem;

// Token ids, of a file of them or of a text; the last tenth is kept for validation.
struct Tokens {
  Tokens(const std::string& file, const std::string& tokenizer, int64_t vocab_size) {
    if (fs::path(file).extension() == ".bin") {
      ids.emplace(file, vocab_size > 65536 ? 4 : 2);
    } else {
      const auto text = datasets::MappedFile::open(file, "llm", "a text");
      const auto path = (fs::temp_directory_path() / ("llm-" + std::to_string(::getpid()) + ".bin")).string();
      datasets::write_token_file(path, llm::Tokenizer(tokenizer).encode(text->text(), false), 4);
      ids.emplace(path, 4);
      fs::remove(path);  // it stays mapped
    }
    train = ids->size() * 9 / 10;
  }
  std::optional<datasets::TokenFile> ids;
  int64_t train = 0;
};

double validation_loss(llm::Decoder& model, const Tokens& tokens, int64_t context) {
  const NoGradGuard no_grad;
  Generator random(1);
  double sum = 0;
  for (int i = 0; i < 20; ++i) {
    const auto [x, y] = tokens.ids->random_windows(context, 8, random, tokens.train);
    sum += cross_entropy(model(x).flatten(0, 1), y.flatten()).item<double>() / 20;
  }
  return sum;
}

int main(int argc, char** argv) {
  tools::Flags flags("llm", "Trains or fine-tunes a language model on token ids (.bin) or a text.");
  auto& from = flags.text("--model", "", "folder of a model to go on from: config.json and weights");
  auto& config = flags.text("--config", "", "config.json of a model to train from nothing");
  auto& tokenizer = flags.text("--tokenizer", "", "tokenizer.json for texts; unless given, the model's");
  auto& lora = flags.whole("--lora", 0, "rank of adapters of all projections; 0: everything is trained", {0, 4096});
  auto& steps = flags.whole("--steps", 500, "training steps", {1, 1e7});
  auto& batch = flags.whole("--batch", 8, "sequences per step", {1, 1e5});
  auto& context = flags.whole("--context", 64, "tokens of a sequence", {1, 1e6});
  auto& rate = flags.number("--lr", 1e-3, "the largest learning rate", {1e-8, 10});
  auto& dtype = flags.text("--dtype", "float32", "of the weights", {"float32", "bfloat16"});
  auto& dims = flags.text("--mesh", "", "such as dp=2,pp=2,tp=2; what it leaves of the workers is in dp");
  auto& shard = flags.text("--shard", "none", "what replicas divide", {"none", "state", "gradients", "all"});
  auto& out = flags.text("--out", "", "folder for the model, or for its adapters, in Hugging Face's form");
  auto& prompt = flags.text("--prompt", "", "write on behind this text at the end");
  auto& seed = flags.seed("of weights and windows");
  auto& picture = flags.picture("--chart", "llm.svg", "picture of the loss (SVG)");
  auto& file = flags.file("DATA", "token ids (.bin) or a text");
  auto& saved = flags.checkpoints();
  if (auto code = flags.parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    if (from.empty() == config.empty())
      throw_error(ErrorKind::invalid, "give either --model FOLDER, to go on from it, or --config FILE, to begin");
    llm::DecoderOptions options = llm::read_config(from.empty() ? config : from);
    options.dtype = dtype == "bfloat16" ? bfloat16 : float32;
    if (lora) options.lora = {.r = lora, .lora_alpha = 2.0 * lora, .target_modules = llm::projection_names()};
    const std::string words = !tokenizer.empty() ? tokenizer : from.empty() ? fs::path(config).parent_path().string() : from;
    const Tokens tokens(file, words, options.vocab_size);

    const Mesh mesh(cluster, mesh_dims(dims, {"pp", "tp", "dp"}, cluster.workers().size()));
    manual_seed(seed);
    const auto stages = parallel::spawn<parallel::ModuleStage<llm::Decoder>>(cluster.here(), mesh, options);
    parallel::Pipelines model(cluster.here(), stages,
                              {.tied = llm::tied_stages(options, mesh.size("pp")), .shard = parallel::shard_named(shard)});
    if (!from.empty()) llm::load_pretrained(stages, from);
    optim::Distributed<optim::AdamW> optimizer(stages, {.lr = rate, .beta2 = 0.99, .weight_decay = 0.1});
    optim::Scheduler schedule(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps, 0.1)));
    Generator random(seed);
    tools::Training training(picture, "Language model on " + file, steps, {.smooth = 16});
    Keep keep("random", random);
    Job job(cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(steps)) {
      const auto [x, y] = tokens.ids->random_windows(context, batch, random, 0, tokens.train);
      autograd::Context gradients(cluster);
      const double loss = model.step(Value(x), Value(y)).loss;
      optimizer.clip_grad_norm(gradients, 1.0), optimizer.step(gradients), schedule.step();
      training.step(loss, batch * context);
    }
    training.finish("loss %.3f in the last 20 steps", training.loss(20));
    if (out.empty()) return;

    if (lora)
      llm::save_adapters(stages, options, out, from);
    else
      llm::save_pretrained(stages, options, out);
    const fs::path tokens_of = fs::is_directory(words) ? fs::path(words) / "tokenizer.json" : fs::path(words);
    if (fs::exists(tokens_of)) fs::copy_file(tokens_of, fs::path(out) / "tokenizer.json", fs::copy_options::overwrite_existing);
    llm::Decoder whole = llm::load_pretrained(lora ? from : out);
    if (lora) llm::load_adapters(whole, out);
    std::printf("validation loss %.3f; model: %s\n", validation_loss(whole, tokens, context), out.c_str());
    if (prompt.empty()) return;
    const llm::Tokenizer text(words);
    const auto ids = text.encode(prompt);
    const auto written = llm::generate(whole, {ids}, {.max_new_tokens = 60, .temperature = 0.8, .seed = seed});
    std::printf("%s%s\n", prompt.c_str(), text.decode(written[0]).c_str());
  };
  return launch(train, {.checkpoints = saved});
}
