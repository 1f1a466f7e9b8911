#!/usr/bin/env python3
"""The C++ names of the headers that programs include, from their doc comments: Doxygen reads them, this renders its XML as pages.

    docs_cpp.py            exit code 1 if a page of docs/reference/cpp is not what the headers say; skipped without Doxygen 1.9.4
    docs_cpp.py --write    writes the pages

Left out: namespaces `internal` and `detail`, private and deleted members, destructors, and what has no text where nothing of its class has.
Operators of tensors are in operators.md.
"""
import pathlib, re, shutil, subprocess, sys, tempfile, textwrap, xml.etree.ElementTree as tree

VERSION = "1.9.4"  # Debian 12's; others may break lines in another way
root = pathlib.Path(__file__).resolve().parent.parent
folder = root / "docs/reference/cpp"
# Page, title, the header to include, and the files whose names it has, in this order.
PAGES = [
    ("cluster", "Clusters and programs", "troupe/troupe.h", "troupe/cluster/launch.h troupe/cluster/cluster.h troupe/ways/ways.h troupe/launch/launch_environment.h core/base/error.h"),
    ("actors", "Actors and references", "troupe/troupe.h", "actors/actor.h actors/cell/method_list.h rref/here.h rref/rref.h rref/remote.h rref/any_ref.h "
     "rref/ref_base.h actors/cell/task.h"),
    ("calls", "Calls and futures", "troupe/calls.h", "core/async/future.h core/async/future_combinators.h actors/call_scope.h actors/cell/this_call.h"),
    ("tensors", "Tensors", "troupe/troupe.h", "core/tensor/tensor.h core/tensor/creation.h core/tensor/indexing.h core/tensor/tensor_options.h core/tensor/dtype.h "
     "core/tensor/shape.h core/tensor/scalar.h core/memory/device.h core/base/generator.h core/base/seed_stream.h"),
    ("gradients", "Gradients", "troupe/gradients.h", "autograd/distributed/context.h autograd/run_options.h autograd/engine.h autograd/hooks.h autograd/ready_hooks.h "
     "autograd/checkpoint.h autograd/function.h autograd/function_ctx.h autograd/gradcheck.h autograd/opcheck.h autograd/graph_dot.h "
     "core/graph/anomaly.h core/graph/enable_grad_guard.h core/graph/exposed.h core/graph/inplace_write.h"),
    ("modules", "Modules", "troupe/troupe.h", "nn/module.h nn/sequential.h nn/module_list.h nn/any_layer.h nn/linear.h nn/activation.h nn/conv.h nn/conv3d.h nn/norm.h nn/norm_layer.h nn/instance_norm.h nn/dropout.h nn/embedding.h "
     "nn/rnn.h nn/attention.h nn/transformer.h nn/init.h nn/summary.h autograd/distributed/optim/module_actor.h"),
    ("optimizers", "Optimizers", "troupe/troupe.h", "autograd/distributed/optim/optimized_actor.h autograd/distributed/optim/distributed_optimizer.h autograd/distributed/optim/step_report.h "
     "autograd/distributed/optim/parameter_filter.h autograd/distributed/optim/context_gradients.h autograd/distributed/optim/step_all.h optim/optimizer.h optim/tunable.h optim/sgd.h optim/adam.h optim/adamax.h optim/rmsprop.h optim/rprop.h "
     "optim/lamb.h optim/nadam.h optim/adafactor.h optim/muon.h optim/lbfgs.h optim/schedule.h optim/clip.h optim/loss_scaler.h"),
    ("checkpoints", "Checkpoints", "troupe/troupe.h", "troupe/job/job.h troupe/launch/stop.h troupe/checkpoint/checkpoints.h core/codec/keep.h core/graph/stateful.h"),
    ("pipelines", "Pipelines", "troupe/pipeline.h", "parallel/pipeline/pipeline.h parallel/pipeline/pipelines.h parallel/pipeline/stage_layers.h parallel/pipeline/module_stage.h parallel/pipeline/pipelines_report.h parallel/pipeline/split.h parallel/pipeline/delayed_updates.h parallel/pipeline/step_report.h "
     "parallel/pipeline/schedule/schedule.h parallel/pipeline/schedule/choose_policy.h parallel/pipeline/schedule/schedule_check.h "
     "parallel/pipeline/schedule/simulate.h parallel/pipeline/schedule/stage_map.h"),
    ("servers", "Parameter servers", "troupe/server.h", "parallel/server/served_parameters.h parallel/server/served_table.h parallel/server/served_module.h "
     "parallel/server/served_gradients.h parallel/server/server.h parallel/server/client_options.h parallel/server/client_base.h parallel/server/consistency/server_policy.h parallel/staleness/staleness_ledger.h "
     "parallel/server/compression/compression.h"),
    ("replicas", "Replicas", "troupe/replicas.h", "parallel/data/data_parallel.h parallel/data/gradient_reducer.h parallel/data/buckets.h "
     "parallel/data/parameter_average.h parallel/data/aggregation.h parallel/server/compression/bucket.h parallel/server/compression/own_compression.h "
     "parallel/sharded/shard.h parallel/sharded/sharded.h parallel/sharded/rank_bytes.h parallel/data/replicas_report.h"),
    ("pools", "Pools", "troupe/pool.h", "troupe/pool/pool.h troupe/pool/pool_core.h troupe/pool/supervision.h"),
    ("tensor_parallel", "Tensor parallelism", "troupe/tensor_parallel.h", "parallel/mesh/actor_mesh.h parallel/mesh/weighted_mean.h parallel/tensor/convert.h "
     "parallel/tensor/linear.h parallel/tensor/copied.h parallel/tensor/vocabulary.h parallel/tensor/transformer.h parallel/sharded/sharded_encoder_layer.h parallel/tensor/placement.h parallel/tensor/whole_model.h"),
    ("context_parallel", "Context parallelism", "troupe/context_parallel.h", "parallel/context/attention.h parallel/context/sequence.h parallel/context/transformer.h"),
    ("experts", "Experts", "troupe/experts.h", "parallel/experts/experts.h"),
    ("language_models", "Language models", "troupe/llm.h", "llm/decoder.h llm/decoder_options.h llm/config.h llm/pretrained.h llm/decoder_layer.h llm/lora_options.h llm/adapters.h llm/sampling.h llm/generate.h llm/paged_cache.h llm/text_batch.h llm/serve_model.h llm/model_server.h llm/tokenizer.h"),
    ("exchange", "Other programs", "troupe/onnx.h", "troupe/onnx/export_onnx.h core/graph/dlpack.h"),
    ("layouts", "Layouts", "troupe/layout.h", "parallel/layout/layout.h parallel/layout/build.h"),
    ("plans", "Plans", "troupe/plan.h", "parallel/measure/model_profile.h parallel/measure/measure.h parallel/plan/plan.h parallel/plan/layout_plan.h parallel/plan/planned_layout.h parallel/plan/layout_cost.h parallel/plan/check.h parallel/plan/read_profile_of.h"),
    ("groups", "Groups", "troupe/groups.h", "collective/group.h collective/mesh.h collective/reduction.h"),
    ("data", "Data", "troupe/data.h", "data/datasets/dataset.h data/datasets/loader.h data/datasets/sampler.h data/datasets/padding.h data/datasets/prefetch.h data/streams/source.h data/streams/array_rows.h data/streams/csv_rows.h data/streams/tar_samples.h data/streams/pictures.h data/formats/picture_options.h data/formats/picture.h data/streams/pipeline.h data/streams/recipe.h data/streams/feed.h parallel/feed/feed_readers.h data/datasets/csv.h data/datasets/text.h data/datasets/token_file.h data/formats/safetensors_entry.h data/formats/safetensors.h data/formats/npy.h "
     "data/datasets/idx.h data/datasets/digits.h data/formats/summary.h"),
    ("guests", "Guests of a cluster", "troupe/claim.h", "troupe/cluster/claim.h troupe/cluster/attach.h"),
    ("simulated", "Simulated clusters", "troupe/simulated.h", "troupe/simulated/simulate.h troupe/simulated/simulated_cluster.h troupe/simulated/simulated_fault.h net/sim/link_faults.h"),
    ("profiles", "Profiles", "troupe/profile.h", "troupe/watch/profile.h troupe/watch/breakdown.h"),
    ("operators", "Operators of your own", "troupe/operators.h", "ops/dispatch/op.h ops/dispatch/kernel_table.h ops/dispatch/check.h ops/gradient_rules.h "
     "ops/dispatch/threads.h ops/cpu/gemm/packed_weights.h"),
]
# One page of declarations alone: operators, the members of Tensor, initial values.
SIGNATURES = [("Members of Tensor", "core/tensor/tensor_methods.h")] + [
    ("`nn::init`", "nn/init.h"), ("Tensors of numbers", "core/tensor/creation.h")] + [
    (None, line.split('"')[1]) for line in (root / "ops/ops.h").read_text().split("\n") if line.startswith('#include "ops/') and "/dispatch/" not in line and "/cpu/" not in line]
HIDDEN = re.compile(r"\b(internal|detail|testing)\b")
# Public for the library's own sake: programs do not use them.
OURS = {"Edge", "ViewOrigin", "TensorImpl", "TensorData", "ThenResult",
        "builtin_actors", "install_meshes", "install_whole_models", "install_pretrained", "install_adapters", "own_dropout", "whole_tensors", "count_sent_from_here", "count_sent_up_to_here", "rank_bytes", "expected_of", "bytes_table", "HasMemberParts", "MemberPart", "buckets_of", "ReplicaOf", "ModuleReplica", "mesh_of_its_own", "workers_of", "mesh_by_turn", "in_turn", "put", "count_copies_once", "rank_in", "checked_sizes", "IsAlong", "count_names", "FoundKernels", "refer_to_self", "set_parameter_finder", "as_source", "made_parts", "Drawn", "core_"}
SETTINGS = """FULL_PATH_NAMES = YES
STRIP_FROM_PATH = {root}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
OUTPUT_DIRECTORY = {out}
EXTRACT_ALL = YES
QUIET = YES
WARNINGS = NO
INPUT_FILTER = "sed -E 's#^( *///)   #\\1       #'"
INPUT = {files}
"""


def text_of(node):
    """A description as Markdown: paragraphs, code in backticks, blocks of code."""
    if node is None:
        return ""

    def inline(n):
        out = n.text or ""
        for child in n:
            if child.tag == "computeroutput":
                inner = "".join(child.itertext())
                out += f"`{inner}`"
            elif child.tag in ("verbatim", "preformatted"):
                out += f"\n\n```c++\n{textwrap.dedent((child.text or '').strip(chr(10)))}\n```\n\n"
            elif child.tag == "programlisting":
                lines = ["".join(line.itertext() if line.find('.//sp') is None else code(line)) for line in child]
                out += "\n\n```c++\n" + textwrap.dedent("\n".join(lines)) + "\n```\n\n"
            elif child.tag in ("itemizedlist", "orderedlist"):
                out += "\n\n" + "\n".join("- " + " ".join(inline(item).split()) for item in child) + "\n\n"
            elif child.tag == "simplesect":
                out += "\n\n" + inline(child)
            elif child.tag == "linebreak":
                out += " "
            elif child.tag in ("ndash", "mdash"):
                out += "-" * (1 + (child.tag == "ndash")) if child.tag == "ndash" else "---"
            else:
                out += inline(child)
            out += child.tail or ""
        return out

    def code(line):
        out = line.text or ""
        for child in line:
            out += (" " if child.tag == "sp" else code(child)) + (child.tail or "")
        return out

    parts = []
    for para in node.iter("para") if node.tag != "para" else [node]:
        if any(para is inner for outer in node.iter("para") if outer is not para for inner in outer.iter("para")):
            continue  # a paragraph of a list's item
        for part in re.split(r"(\n\n```c\+\+\n.*?\n```\n\n)", inline(para), flags=re.S):
            if part.startswith("\n\n```"):
                parts.append(part.strip("\n"))
            else:
                parts += [p if p.startswith("- ") else " ".join(p.split()) for p in re.split(r"\n\n+", part)]
    return "\n\n".join(p for p in parts if p.strip())


def words_of(member):
    return "\n\n".join(t for t in (text_of(member.find("briefdescription")), text_of(member.find("detaileddescription"))) if t)


def tidy(text):
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([&*]+)(?=[\s,)>]|$)", r"\1", text)
    text = re.sub(r" ([&*]+)(\w)", r"\1 \2", text)
    return re.sub(r"< (.*?) >", r"<\1>", re.sub(r"< (.*?) >", r"<\1>", text)).replace("< ", "<").replace("troupe::", "")


def template_of(node):
    parameters = node.find("templateparamlist")
    if parameters is None or not len(parameters):
        return ""
    texts = []
    for p in parameters:
        kind = tidy("".join(p.find("type").itertext()))
        name = p.find("declname")
        texts.append(kind + (f" {name.text}" if name is not None and name.text not in kind.split() else ""))
    return f"template <{', '.join(texts)}> "


def declaration(member, owner):
    kind, name = member.get("kind"), member.find("name").text
    type_ = tidy("".join(member.find("type").itertext())) if member.find("type") is not None else ""
    full = (owner + "::" if owner else "") + name
    if kind == "enum":
        return f"enum class {full}"
    if kind == "typedef":
        return f"using {name} = {type_}"
    start = template_of(member) + ("static " if member.get("static") == "yes" else "")
    if kind == "variable":
        value = member.find("initializer")
        value = " " + tidy("".join(value.itertext())) if value is not None else ""
        if value and not value.startswith((" =", " {")):
            value = " =" + value
        return start + f"{type_} {full}{value}"
    arguments = tidy(member.find("argsstring").text or "()")
    arguments = re.sub(r"\s*=\s*(default|0)$", "", arguments)
    return start + (f"{type_} " if type_ else "") + full + arguments


def skipped(member):
    arguments = member.find("argsstring")
    if member.find("name").text in OURS:
        return True
    if arguments is not None and not words_of(member) and re.match(r"\((const )?(\w+) ?(&|&&|) ?o?\)", arguments.text or "") \
            and re.match(r"\((?:const )?(\w+)", arguments.text)[1] in (member.find("qualifiedname").text.split("::")[-2:-1] or [""]):
        return True  # copies and moves
    return (member.get("prot") not in (None, "public") or member.find("name").text.startswith("~") or member.get("kind") in ("friend", "define")
            or (arguments is not None and re.search(r"=\s*delete$", arguments.text or "")) or member.find("name").text.startswith("@"))


def entry(shown, words):
    if not words:
        return f"- `{shown}`"
    if "```" not in words and "\n- " not in words:
        return f"- `{shown}`: " + " ".join(words.split())
    first, _, rest = words.partition("\n\n")
    return f"- `{shown}`: {first}\n\n" + textwrap.indent(rest, "    ") + "\n"


def members_of(members, owner):
    lines, before = [], None  # what takes or gives a type of `internal` needs a text to be shown
    for member in members:
        words, shown = words_of(member), declaration(member, owner)
        if member.get("kind") == "enum":
            lines.append(entry(shown, words))
            lines += [f"  - `{v.find('name').text}`" + (f": {' '.join(words_of(v).split())}" if words_of(v) else "") for v in member.findall("enumvalue")]
        elif shown != before and (words or "internal::" not in shown):
            lines.append(entry(shown, words))
        before = shown
    return lines


def line_of(node):
    return int(node.find("location").get("line"))


def read(files, silent=()):
    """{file: [(line, heading or None, members, words, name)]} of classes and functions, in the order of the file; of files that are
    `silent`, also of functions without a text."""
    with tempfile.TemporaryDirectory() as out:
        settings = pathlib.Path(out) / "Doxyfile"
        settings.write_text(SETTINGS.format(root=root, out=out, files=" ".join(str(root / f) for f in files)))
        subprocess.run(["doxygen", settings], check=True, cwd=root, stdout=subprocess.DEVNULL)
        found = {file: [] for file in files}
        for path in sorted((pathlib.Path(out) / "xml").glob("*.xml")):
            if not path.name.startswith(("class", "struct", "namespace")):
                continue
            compound = tree.parse(path).getroot().find("compounddef")
            name = compound.find("compoundname").text
            if HIDDEN.search(name) or not (name == "troupe" or name.startswith("troupe::")):
                continue
            members = [m for section in compound.findall("sectiondef") for m in section.findall("memberdef") if not skipped(m)]
            if compound.get("kind") == "namespace":
                owner = name[8:]
                for m in members:
                    file = m.find("location").get("file")
                    if file in found and (words_of(m) or file in silent) and not HIDDEN.search(declaration(m, owner).split("(")[0].split()[-1]):
                        found[file].append((line_of(m), None, [m], "", owner))
                continue
            if compound.get("prot") == "private" or "<" in name or name.split("::")[-1] in OURS:
                continue
            file, words = compound.find("location").get("file"), words_of(compound)
            members = sorted((m for m in members if m.find("location").get("file") == file), key=line_of)
            if file in found and (words or file in silent or any(words_of(m) for m in members)):
                parameters = [p.split()[-1] for p in template_of(compound)[10:-2].split(", ")] if template_of(compound) else []
                shown = f"`{name[8:]}{'<' + ', '.join(parameters) + '>' if parameters else ''}`"
                found[file].append((line_of(compound), shown, members, words, ""))
    return {file: sorted(entries, key=lambda e: e[0]) for file, entries in found.items()}


def signatures():
    """The page of declarations: of each file the functions, as they are called, with the defaults."""
    files = [file for _, file in SIGNATURES]
    found = read(files, silent=files)
    lines = ["# C++ signatures", "", "Every function of tensors and every member of `Tensor` as C++ has it, with its defaults, which are libtorch's. [Operators](../operators.md) says what "
             "each does; functions are in `troupe` by name alone where a tensor is an argument (`relu(x)`), and else `ops::`. Written from the headers by `./dev docs`.", ""]
    for title, file in SIGNATURES:
        shown = []
        for _, heading, members, _, owner in found[file]:
            for m in members:
                text = declaration(m, "")
                if m.get("kind") == "function" and "internal::" not in text and not re.match(r"(virtual |explicit )?[A-Z]\w*\(", text) and "TensorMethods" not in text:
                    shown.append(re.sub(r"\) const$", ")", text) + ";")
        if not shown:
            continue
        title = title or "`" + file.split("/")[-1][:-2].replace("_", " ") + "`"
        lines += [f"## {title}", "", "```text", *dict.fromkeys(shown), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def pages():
    found = read([file for page in PAGES for file in page[3].split()])
    out, index = {}, ["# C++ names", "", "Written from the doc comments of the headers by `./dev docs`. Namespaces are inside `troupe`. [Operators, modules and optimizers](../operators.md) has the functions of tensors.", "",
                      "| page | names |", "|---|---|"]
    for page, title, header, files in PAGES:
        lines, names = [f"# {title}", "", f"`#include <{header}>`. Written from the headers by `./dev docs`.", ""], []
        for file in files.split():
            loose = []
            for _, heading, members, words, owner in found[file]:
                if heading is None:
                    loose += members_of(members, owner)
                    names.append((f"{owner}::" if owner else "") + members[0].find("name").text)
                    continue
                if loose:
                    lines += [*loose, ""]
                    loose = []
                names.append(heading.strip("`"))
                lines += [f"## {heading}", ""] + ([words, ""] if words else []) + [*members_of(members, ""), ""]
            if loose:
                lines += [*loose, ""]
        out[f"{page}.md"] = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"
        index.append(f"| [{title}]({page}.md) | {', '.join(f'`{n}`' for n in dict.fromkeys(names))} |")
    out["signatures.md"] = signatures()
    index.append("| [Signatures](signatures.md) | all functions of tensors and members of `Tensor`, with defaults |")
    out["README.md"] = "\n".join(index) + "\n"
    return out


if __name__ == "__main__":
    if not shutil.which("doxygen") or (version := subprocess.run(["doxygen", "--version"], capture_output=True, text=True).stdout.split()[0]) != VERSION:
        print(f"test-skipped: needs Doxygen {VERSION}")
        sys.exit(sys.argv[1:] == ["--write"])
    wanted = pages()
    if sys.argv[1:] == ["--write"]:
        folder.mkdir(parents=True, exist_ok=True)
        for name in {p.name for p in folder.glob("*.md")} - set(wanted):
            (folder / name).unlink()
        for name, text in wanted.items():
            (folder / name).write_text(text)
        sys.exit()
    wrong = [name for name, text in wanted.items() if not (folder / name).exists() or (folder / name).read_text() != text]
    print(*(f"docs/reference/cpp/{name} is not what the headers say: ./dev docs writes it" for name in wrong), f"docs-cpp: {len(wanted)} pages, {len(wrong)} wrong", sep="\n")
    sys.exit(bool(wrong))
