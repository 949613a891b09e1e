#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/SHA256.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>

#include "backend/cpu/guarded.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/kernel_emitter.h"
#include "backend/cpu/optimize.h"
#include "base/build_id.h"
#include "base/error.h"

namespace tilewright::cpu {

namespace {

/// Loads look past at most 20 stores for the one that they depend on, where LLVM's default is 100. Unrolled tiles have
/// long rows of stores: of ppocrv3_det_ch's 125 kernels three were not the same, and LLVM's passes took 15 % less time.
/// The option is one for the process; a value that the host has set stays.
void limit_memory_walks() {
    const auto& options = llvm::cl::getRegisteredOptions();
    const auto it = options.find("memssa-check-limit");
    if (it == options.end() || it->second->getNumOccurrences() > 0) return;
    static_cast<llvm::cl::opt<unsigned>*>(it->second)->setValue(20);
}

void initialize_llvm() {
    static std::once_flag once;
    std::call_once(once, [] {
        limit_memory_walks();
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        llvm::InitializeNativeTargetAsmParser();
    });
}

/// The code generators of other architectures.
void initialize_all_of_llvm() {
    static std::once_flag once;
    std::call_once(once, [] {
        llvm::InitializeAllTargetInfos();
        llvm::InitializeAllTargets();
        llvm::InitializeAllTargetMCs();
        llvm::InitializeAllAsmPrinters();
    });
}

std::string message(llvm::Error e) {
    std::string s;
    llvm::raw_string_ostream(s) << e;
    return s;
}

template <class T>
T unwrap(llvm::Expected<T> e) {
    if (!e) throw RuntimeError("LLVM: " + message(e.takeError()));
    return static_cast<T&&>(*e);
}

bool of_this_architecture(const LlvmCpu& cpu) { return llvm::Triple(cpu.triple).getArchName().str() == kHostArch; }

std::unique_ptr<llvm::TargetMachine> target_machine(const LlvmCpu& cpu) {
    initialize_llvm();
    if (!of_this_architecture(cpu)) initialize_all_of_llvm();
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(cpu.triple, error);
    if (target == nullptr) throw RuntimeError(fmt::format("no code generator for target '{}': {}", cpu.triple, error));
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
    std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(cpu.triple, cpu.name, cpu.features,
                                                                             options, llvm::Reloc::PIC_, std::nullopt,
                                                                             llvm::CodeGenOptLevel::Default, true));
    if (machine == nullptr) throw RuntimeError("no code generator for cpu " + cpu.name);
    return machine;
}

struct Emitted {
    std::unique_ptr<llvm::LLVMContext> context;
    std::unique_ptr<llvm::Module> module;
    EmittedKernel kernel;
};

constexpr const char* kSymbol = "kernel";

/// Returns everything that the code of a tile program depends on, for this build of the compiler; empty if the build
/// has no id.
std::string text_of(const TileProgram& program, const Target& target, const LlvmCpu& cpu) {
    if (build_id().empty()) return {};
    return fmt::format("emitted by {} LLVM " LLVM_VERSION_STRING " {} {} {} {} {}\n{}", build_id(), cpu.triple,
                       cpu.name, cpu.features, target.vector_bits, target.last_cache_bytes(),
                       print_without_names(program));
}

/// Returns the cache entry of a tile program: all of EmittedKernel, and the key of its machine code.
std::string text_of(const EmittedKernel& kernel, const std::string& made_of) {
    std::string text = fmt::format("{}\n", kernel.scratch_bytes);
    for (const Var v : kernel.names) text += Expr::var(v).text() + ' ';
    text += '\n';
    for (const Expr e : kernel.grid) text += e.text() + ';';
    return text + '\n' + made_of;
}

struct KeptKernel {
    EmittedKernel kernel;
    std::string made_of;
};

/// Removes the part of `text` up to the first `end`, including it, and returns the part before it; nothing if there is
/// no `end`.
std::optional<std::string_view> taken_off(std::string_view& text, char end) {
    const size_t at = text.find(end);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view part = text.substr(0, at);
    text.remove_prefix(at + 1);
    return part;
}

/// The inverse of text_of; nothing for any other text.
std::optional<KeptKernel> kept_kernel_in(std::string_view text) {
    const auto scratch = taken_off(text, '\n');
    auto names = taken_off(text, '\n'), grid = taken_off(text, '\n');
    if (!scratch || !names || !grid) return std::nullopt;
    KeptKernel out;
    const auto [end, error] =
        std::from_chars(scratch->data(), scratch->data() + scratch->size(), out.kernel.scratch_bytes);
    if (error != std::errc() || end != scratch->data() + scratch->size()) return std::nullopt;
    try {
        while (const auto name = taken_off(*names, ' ')) {
            const auto v = parse_expr(*name).as_var();
            if (!v) return std::nullopt;
            out.kernel.names.push_back(*v);
        }
        while (const auto e = taken_off(*grid, ';')) out.kernel.grid.push_back(parse_expr(*e));
    } catch (const ModelError&) {
        return std::nullopt;
    }
    if (!names->empty() || !grid->empty()) return std::nullopt;
    out.made_of = text;
    return out;
}

Emitted emit(const TileProgram& program, const Target& target, llvm::TargetMachine& machine, bool names = true) {
    Emitted out;
    out.context = std::make_unique<llvm::LLVMContext>();
    out.context->setDiscardValueNames(!names);
    out.module = std::make_unique<llvm::Module>(kSymbol, *out.context);
    out.module->setDataLayout(machine.createDataLayout());
    out.module->setTargetTriple(llvm_cpu(target).triple);
    out.kernel = emit_kernel(*out.module, kSymbol, program, target);
    std::string problems;
    llvm::raw_string_ostream stream(problems);
    if (llvm::verifyModule(*out.module, &stream))
        internal_error(__FILE__, __LINE__, "generated LLVM IR is valid", program.name + ": " + problems);
    return out;
}

/// Returns everything that the machine code depends on: the unoptimised module, and the passes and CPU.
std::string made_of(const llvm::Module& module, const LlvmCpu& cpu) {
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::WriteBitcodeToFile(module, stream);
    const auto digest = llvm::SHA256::hash({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    std::string text =
        fmt::format("LLVM " LLVM_VERSION_STRING " passes {} {} {} {}\n", kPasses, cpu.triple, cpu.name, cpu.features);
    for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
    return text;
}

llvm::SmallVector<char, 0> to_file(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
    reduce_strength(module, machine);
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    CodeGeneratorPasses passes;
    if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
        throw RuntimeError("LLVM cannot write this kind of file");
    passes.run(module);
    return bytes;
}

/// `key`: made_of the module, if there is a cache.
llvm::SmallVector<char, 0> object_of(llvm::Module& module, const std::string& key, const CodeCache* known,
                                     llvm::TargetMachine& machine) {
    if (known != nullptr)
        if (const auto code = known->find(key)) return {code->begin(), code->end()};
    optimize(module, machine);
    llvm::SmallVector<char, 0> object = to_file(module, machine, llvm::CodeGenFileType::ObjectFile);
    if (known != nullptr) known->keep(key, {object.data(), object.size()});
    return object;
}

struct Compiled {
    EmittedKernel kernel;
    llvm::SmallVector<char, 0> object;
};

/// Compiles tile programs one after the other, using cached code. A tile program that this build has compiled before is
/// not even lowered to LLVM IR.
class Compiler {
  public:
    Compiler(const Target& target, const CodeCache* known) : target_(target), cpu_(llvm_cpu(target)), known_(known) {}

    Compiled operator()(const TileProgram& program) {
        const std::string text = known_ != nullptr ? text_of(program, target_, cpu_) : std::string();
        if (!text.empty())
            if (const auto found = known_->find(text))
                if (auto kept = kept_kernel_in(*found))
                    if (const auto code = known_->find(kept->made_of))
                        return {std::move(kept->kernel), {code->begin(), code->end()}};
        if (!machine_) machine_ = target_machine(cpu_);
        Emitted e = emit(program, target_, *machine_);
        const std::string key = known_ != nullptr ? made_of(*e.module, cpu_) : std::string();
        Compiled out{std::move(e.kernel), object_of(*e.module, key, known_, *machine_)};
        if (!text.empty()) known_->keep(text, text_of(out.kernel, key));
        return out;
    }

  private:
    const Target& target_;
    const LlvmCpu cpu_;
    const CodeCache* known_;
    std::unique_ptr<llvm::TargetMachine> machine_;  ///< created for the first program that needs it
};

/// Links the object files, one kernel each, into this process and sets `run` and `code`.
void load(std::vector<llvm::SmallVector<char, 0>> objects, std::vector<CompiledKernel>& out) {
    auto machine_builder = unwrap(llvm::orc::JITTargetMachineBuilder::detectHost());
    std::shared_ptr<llvm::orc::LLJIT> jit =
        unwrap(llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(machine_builder)).create());
    auto generator =
        unwrap(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(jit->getDataLayout().getGlobalPrefix()));
    jit->getMainJITDylib().addGenerator(std::move(generator));
    for (size_t i = 0; i < objects.size(); ++i) {  // one library per kernel, since all functions have the same name
        llvm::orc::JITDylib& library = unwrap(jit->createJITDylib(fmt::format("kernel_{}", i)));
        library.addToLinkOrder(jit->getMainJITDylib());
        auto object = std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(objects[i]), false);
        if (auto error = jit->addObjectFile(library, std::move(object)))
            throw RuntimeError("LLVM: " + message(std::move(error)));
        out[i].run = unwrap(jit->lookup(library, kSymbol)).toPtr<KernelFn>();
        out[i].code = jit;
    }
}

}  // namespace

namespace {

LlvmCpu host_cpu() {
    static const LlvmCpu host = [] {
        initialize_llvm();
        LlvmCpu cpu{llvm::sys::getProcessTriple(), llvm::sys::getHostCPUName().str(), {}};
        for (const auto& [name, on] : llvm::sys::getHostCPUFeatures())
            cpu.features += (cpu.features.empty() ? "" : ",") + std::string(on ? "+" : "-") + name.str();
        return cpu;
    }();
    return host;
}

}  // namespace

LlvmCpu llvm_cpu(const Target& target) {
    LlvmCpu host = host_cpu();
    if (target.native) return host;
    const bool same = target.arch == kHostArch;
    std::string more;
    for (const std::string& f : target.extra) more += (more.empty() ? "+" : ",+") + f;
    return {same ? host.triple : target.arch + "-unknown-linux-gnu", std::string(llvm_name(target.isa)), more};
}

std::vector<CompiledKernel> compile(const std::vector<const TileProgram*>& programs, const Target& target,
                                    const std::shared_ptr<const CodeCache>& known, bool keep_objects) {
    std::vector<CompiledKernel> out(programs.size());
    if (programs.empty()) return out;
    std::vector<llvm::SmallVector<char, 0>> objects(programs.size());
    std::atomic<size_t> next{0};
    const size_t workers = std::min<size_t>(programs.size(), std::max(1u, std::thread::hardware_concurrency()));
    run_guarded(workers, [&] {
        try {
            Compiler compiler(target, known.get());
            for (size_t i = next++; i < programs.size(); i = next++) {
                set_guarded_work(programs[i]->name);
                Compiled c = compiler(*programs[i]);
                if (keep_objects) out[i].object.assign(c.object.begin(), c.object.end());
                objects[i] = std::move(c.object);
                out[i].name = programs[i]->name;
                out[i].names = std::move(c.kernel.names);
                out[i].grid = std::move(c.kernel.grid);
                out[i].scratch_bytes = c.kernel.scratch_bytes;
            }
        } catch (...) {
            next = programs.size();  // stops the other threads
            throw;
        }
    });
    if (of_this_architecture(llvm_cpu(target))) run_guarded(1, [&] { load(std::move(objects), out); });
    return out;
}

CompiledKernel compile(const TileProgram& program, const Target& target,
                       const std::shared_ptr<const CodeCache>& known) {
    return std::move(compile(std::vector<const TileProgram*>{&program}, target, known)[0]);
}

std::string print_emitted(const TileProgram& program, const Target& target) {
    std::string s;
    run_guarded(1, [&] {
        set_guarded_work(program.name);
        const auto machine = target_machine(llvm_cpu(target));
        const Emitted e = emit(program, target, *machine, false);
        llvm::raw_string_ostream stream(s);
        e.module->print(stream, nullptr);
    });
    return s;
}

std::string print_llvm(const TileProgram& program, const Target& target) {
    std::string s;
    run_guarded(1, [&] {
        set_guarded_work(program.name);
        const auto machine = target_machine(llvm_cpu(target));
        const Emitted e = emit(program, target, *machine);
        optimize(*e.module, *machine);
        llvm::raw_string_ostream stream(s);
        e.module->print(stream, nullptr);
    });
    return s;
}

std::string print_assembly(const TileProgram& program, const Target& target) {
    std::string s;
    run_guarded(1, [&] {
        set_guarded_work(program.name);
        const auto machine = target_machine(llvm_cpu(target));
        const Emitted e = emit(program, target, *machine);
        optimize(*e.module, *machine);
        const auto bytes = to_file(*e.module, *machine, llvm::CodeGenFileType::AssemblyFile);
        s.assign(bytes.begin(), bytes.end());
    });
    return s;
}

}  // namespace tilewright::cpu
