/// \file msccl_reader.cpp
/// MSCCL's XML to its program.
#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <pugixml.hpp>
#include <utility>

#include "runtime/schedules/msccl_program.h"
#include "runtime/schedules/names.h"
#include "runtime/schedules/schedule_file.h"

namespace flx::schedules {

using algorithms::BitClass;
using algorithms::Collective;
using algorithms::Written;

namespace {

constexpr std::array kTypes = {std::pair{MscclKind::nop, std::string_view("nop")},
                               std::pair{MscclKind::send, std::string_view("s")},
                               std::pair{MscclKind::recv, std::string_view("r")},
                               std::pair{MscclKind::copy, std::string_view("cpy")},
                               std::pair{MscclKind::reduce, std::string_view("re")},
                               std::pair{MscclKind::recv_reduce_copy, std::string_view("rrc")},
                               std::pair{MscclKind::recv_copy_send, std::string_view("rcs")},
                               std::pair{MscclKind::recv_reduce_send, std::string_view("rrs")},
                               std::pair{MscclKind::recv_reduce_copy_send, std::string_view("rrcs")}};
constexpr std::array kCollectiveNames = {
    std::pair{Collective::allreduce, std::string_view("allreduce")},
    std::pair{Collective::allgather, std::string_view("allgather")},
    std::pair{Collective::reduce_scatter_block, std::string_view("reduce_scatter")},
    std::pair{Collective::reduce_scatter_block, std::string_view("reducescatter")}};
constexpr int kMostChunks = 1 << 20;

/// A number that the element has in an attribute.
Status number(const pugi::xml_node &node, const std::string &where, const char *name, int least, int most,
              int &result) {
    const pugi::xml_attribute attribute = node.attribute(name);
    const std::string_view text = attribute.value();
    const auto read = std::from_chars(text.data(), text.data() + text.size(), result);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size() || result < least ||
        result > most)
        return fail(Fault::schedule_file, "{}: \"{}\" {}; it must be a number from {} to {}", where, name,
                    attribute.empty() ? std::string("is not there") : fmt::format("is \"{}\"", text), least, most);
    return {};
}

Status chunk(const pugi::xml_node &node, const std::string &where, const char *buffer, const char *offset,
             MscclChunk &result) {
    const std::string_view text = node.attribute(buffer).value();
    if (text != "i" && text != "o" && text != "s")
        return fail(Fault::schedule_file, "{}: \"{}\" is \"{}\"; it must be i, o or s", where, buffer, text);
    result.buffer = text[0];
    return number(node, where, offset, 0, kMostChunks, result.index);
}

bool sends(MscclKind kind) {
    return kind == MscclKind::send || kind >= MscclKind::recv_copy_send;
}
bool receives(MscclKind kind) {
    return kind == MscclKind::recv || kind >= MscclKind::recv_reduce_copy;
}
/// Whether the step looks at its own memory there. What a send or a receive has for the other side is the other's.
bool uses_source(MscclKind kind) {
    return kind != MscclKind::nop && kind != MscclKind::recv && kind != MscclKind::recv_copy_send;
}
bool uses_target(MscclKind kind) {
    return kind != MscclKind::nop && kind != MscclKind::send && kind != MscclKind::recv_reduce_send;
}

Status read_step(const pugi::xml_node &node, const std::string &block_name, const MscclBlock &block, MscclStep &step) {
    const std::string_view type = node.attribute("type").value();
    step.where = fmt::format("{}, step {} ({})", block_name, block.steps.size() - 1, type);
    int number_in_block = 0;
    FLX_TRY(number(node, step.where, "s", static_cast<int>(block.steps.size()) - 1,
                   static_cast<int>(block.steps.size()) - 1, number_in_block));
    const auto kind = find_name(kTypes, type);
    if (!kind)
        return fail(Fault::schedule_file,
                    "{}: the type is not known; there are nop, s, r, cpy, re, rrc, rcs, rrs and rrcs", step.where);
    step.kind = *kind;
    if (sends(step.kind) && block.send < 0)
        return fail(Fault::schedule_file, "{}: it sends, and the thread block has no \"send\"", step.where);
    if (receives(step.kind) && block.recv < 0)
        return fail(Fault::schedule_file, "{}: it receives, and the thread block has no \"recv\"", step.where);
    if (uses_source(step.kind))
        FLX_TRY(chunk(node, step.where, "srcbuf", "srcoff", step.from));
    if (uses_target(step.kind))
        FLX_TRY(chunk(node, step.where, "dstbuf", "dstoff", step.to));
    if (step.kind != MscclKind::nop)
        FLX_TRY(number(node, step.where, "cnt", 1, kMostChunks, step.count));
    if (!node.attribute("depid").empty())
        FLX_TRY(number(node, step.where, "depid", -1, kMostChunks, step.wait_block));
    if (step.wait_block >= 0)
        FLX_TRY(number(node, step.where, "deps", -1, kMostChunks, step.wait_step));
    return {};
}

Status read_gpu(const pugi::xml_node &node, int rank, int ranks, std::vector<MscclBlock> &blocks) {
    const std::string gpu_name = fmt::format("gpu {}", rank);
    int id = 0;
    FLX_TRY(number(node, gpu_name, "id", rank, rank, id));
    for (const pugi::xml_node &tb : node.children("tb")) {
        const std::string name = fmt::format("{}, tb {}", gpu_name, blocks.size());
        FLX_TRY(number(tb, name, "id", static_cast<int>(blocks.size()), static_cast<int>(blocks.size()), id));
        MscclBlock &block = blocks.emplace_back();
        FLX_TRY(number(tb, name, "send", -1, ranks - 1, block.send));
        FLX_TRY(number(tb, name, "recv", -1, ranks - 1, block.recv));
        FLX_TRY(number(tb, name, "chan", -1, kMostChunks, block.channel));
        if (block.send == rank || block.recv == rank)
            return fail(Fault::schedule_file, "{}: it sends to its own GPU, or receives from it", name);
        for (const pugi::xml_node &step : tb.children("step")) {
            block.steps.emplace_back();
            FLX_TRY(read_step(step, name, block, block.steps.back()));
        }
    }
    for (const MscclBlock &block : blocks)
        for (const MscclStep &step : block.steps)
            if (step.wait_block >= static_cast<int>(blocks.size()) ||
                (step.wait_block >= 0 &&
                 step.wait_step >= static_cast<int>(blocks[static_cast<size_t>(step.wait_block)].steps.size())))
                return fail(Fault::schedule_file, "{}: it waits for tb {}, step {}, which there is not", step.where,
                            step.wait_block, step.wait_step);
    return {};
}

/// What rules can name: letters, digits, dots, dashes and underscores.
std::string fit_name(std::string name) {
    constexpr size_t kLongest = 64;
    name.resize(std::min(name.size(), kLongest));
    for (char &c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.')
            c = '_';
    return name;
}

}  // namespace

Status read_msccl(std::string_view text, const std::string &name, Written &result) {
    result = {};
    pugi::xml_document document;
    const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
    if (!parsed) {
        const auto offset = std::min(static_cast<size_t>(parsed.offset), text.size());
        return fail(Fault::schedule_file, "this is no XML: line {}: {}",
                    1 + std::ranges::count(text.substr(0, offset), '\n'), parsed.description());
    }
    const pugi::xml_node algo = document.child("algo");
    if (algo.empty())
        return fail(Fault::schedule_file, "this is no algorithm of MSCCL: there is no element \"algo\"");
    MscclProgram program;
    const std::string_view coll = algo.attribute("coll").value();
    const auto collective = find_name(kCollectiveNames, coll);
    if (!collective)
        return fail(Fault::schedule_file,
                    "the algorithm: \"coll\" is \"{}\"; FLX takes allreduce, allgather and reduce_scatter", coll);
    program.collective = *collective;
    int in_place = 1;
    FLX_TRY(number(algo, "the algorithm", "inplace", 0, 1, in_place));
    program.in_place = in_place == 1;
    FLX_TRY(number(algo, "the algorithm", "nchunksperloop", 1, static_cast<int>(kMostBlocks), program.chunks));
    const auto gpus = algo.children("gpu");
    const auto ranks = static_cast<int>(std::distance(gpus.begin(), gpus.end()));
    int said = ranks;
    if (!algo.attribute("ngpus").empty())
        FLX_TRY(number(algo, "the algorithm", "ngpus", 1, kMostRanks, said));
    if (said != ranks || ranks < 1 || ranks > kMostRanks)
        return fail(Fault::schedule_file, "the algorithm: \"ngpus\" is {}, and there are {} of them", said, ranks);
    program.gpus.resize(static_cast<size_t>(ranks));
    int rank = 0;
    for (const pugi::xml_node &gpu : gpus) {
        FLX_TRY(read_gpu(gpu, rank, ranks, program.gpus[static_cast<size_t>(rank)]));
        ++rank;
    }
    FLX_TRY(schedules_of(program, result.schedules));
    const std::string own_name = algo.attribute("name").value();
    result.name = fit_name(own_name.empty() ? name : own_name);
    result.description = "an algorithm of MSCCL";
    result.source = "MSCCL's XML";
    result.collective = program.collective;
    result.bits = algorithms::reduces(program.collective) ? BitClass::own : BitClass::none;
    return {};
}

}  // namespace flx::schedules
