#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "driver/explain/drawing.h"
#include "driver/explain/page_text.h"
#include "driver/explain/write.h"

namespace tilewright::explain {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kTitle = 22, kMargin = 6, kInsideGap = 9;
constexpr Box kPrimitive = {112, 15};

Json points(const std::vector<Point>& path, Point by) {
    const auto round = [](double x) { return std::round(x * 10) / 10; };
    Json out = Json::array();
    for (const Point& p : path) out.push_back({round(p.x + by.x), round(p.y + by.y)});
    return out;
}

struct Inside {
    Json primitives = Json::array(), edges = Json::array();
    Box size;
};

/// The primitives of a kernel, or the primitive of a step, in a box.
Inside draw_inside(const Report& r, const std::vector<size_t>& primitives, double title) {
    std::map<size_t, size_t> local;
    for (const size_t p : primitives) local.emplace(p, local.size());
    std::vector<std::pair<size_t, size_t>> edges;
    for (const auto& [p, here] : local)
        for (const size_t q : r.primitives[p].reads)
            if (const auto it = local.find(q); it != local.end()) edges.emplace_back(it->second, here);
    const Drawing d = draw_layers(std::vector<Box>(local.size(), kPrimitive), edges, kInsideGap);
    Inside out;
    for (const auto& [p, here] : local)
        out.primitives.push_back({{"primitive", p},
                                  {"x", d.boxes[here].x + kMargin},
                                  {"y", d.boxes[here].y + title},
                                  {"width", kPrimitive.width},
                                  {"height", kPrimitive.height}});
    for (const auto& path : d.edges) out.edges.push_back(points(path, {kMargin, title}));
    out.size = {std::max(d.size.width, kPrimitive.width) + 2 * kMargin, d.size.height + title + kMargin};
    return out;
}

/// Kernels, then other steps, with their primitives.
Json drawing(const Report& r) {
    std::vector<Inside> inside;
    std::vector<std::pair<size_t, size_t>> edges;
    const auto box = [&](BoxId b) { return b.step ? r.kernels.size() + b.index : b.index; };
    const auto add = [&](const std::vector<size_t>& primitives, const std::vector<BoxId>& reads, double title) {
        for (const BoxId from : reads) edges.emplace_back(box(from), inside.size());
        inside.push_back(draw_inside(r, primitives, title));
    };
    for (const KernelNote& k : r.kernels) add(k.primitives, k.from, kTitle);
    for (const StepNote& s : r.steps) add({s.primitive}, s.from, kMargin);
    std::vector<Box> boxes;
    for (const Inside& i : inside) boxes.push_back(i.size);
    const Drawing d = draw_layers(boxes, edges);
    Json out = {{"width", d.size.width}, {"height", d.size.height}};
    Json list = Json::array();
    for (size_t b = 0; b < boxes.size(); ++b)
        list.push_back({{"x", d.boxes[b].x},
                        {"y", d.boxes[b].y},
                        {"width", boxes[b].width},
                        {"height", boxes[b].height},
                        {"inside", std::move(inside[b].primitives)},
                        {"edges", std::move(inside[b].edges)}});
    out["boxes"] = std::move(list);
    Json paths = Json::array();
    for (size_t e = 0; e < edges.size(); ++e)
        paths.push_back({{"from", edges[e].first}, {"to", edges[e].second}, {"points", points(d.edges[e], {0, 0})}});
    out["edges"] = std::move(paths);
    return out;
}

}  // namespace

std::string to_page(const Report& r, const std::vector<CodeText>& codes) {
    Json j = Json::parse(to_json(r));
    j["drawing"] = drawing(r);
    Json texts = Json::array();
    for (const CodeText& c : codes) texts.push_back({{"tiles", c.tiles}, {"assembly", c.assembly}});
    j["codes"] = std::move(texts);
    // The data is inside a script element, which "</" could end.
    std::string data;
    for (const char c : j.dump(-1, ' ', true, Json::error_handler_t::replace)) {
        if (c == '/' && data.ends_with('<')) data += '\\';
        data += c;
    }
    std::string page = kPage;
    const std::string place = "/*REPORT*/";
    const size_t at = page.find(place);
    TW_CHECK(at != std::string::npos, "the page has no placeholder for the report");
    return page.replace(at, place.size(), data);
}

}  // namespace tilewright::explain
