// A CUDA driver whose device is the host: the library that the production code loads as `libcuda` in tests.
//
// The work of a stream runs only when a caller waits for it, so that reading a result or reusing a buffer too early fails
// in tests, too. FLOWLANE_HOST_DEVICE selects faults, separated by commas:
//   no-device      there is no device
//   old-driver     the driver supports CUDA up to 11.4
//   memory=N       the device has N bytes
//   vanish=N       the device fails from the launch after N on
//   plain=N        launches after N fail, except those of graphs
//   no-capture     streams cannot be captured
//   seed=N         another order of threads
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "kernels.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719, UNSUPPORTED_PTX = 222,
    ILLEGAL_STATE = 401, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
};

using Work = std::deque<std::function<Result()>>;
// A captured stream runs nothing: its work is kept for the graph.
struct Stream { Work work; bool captured = false, invalidated = false; Work capture; };
struct Event { bool recorded = true; Stream *by = nullptr; bool captured = false; };
// Of a graph that can be launched, in the device's memory.
constexpr size_t GRAPH_BYTES = 4096;
struct Function { const Kernel *kernel; size_t shared_bytes_max = 48 << 10; };

std::recursive_mutex lock;
Stream default_stream;
std::map<void *, size_t> device_memory;
std::map<char *, size_t> pinned;
size_t device_bytes = 0;
long launches = 0, plain_launches = 0;
bool vanished = false;
// As with a real driver, a thread has to say with which context it works.
thread_local bool bound = false;
// What this thread captures: meanwhile it may ask for nothing but work on that stream.
thread_local Stream *capturing = nullptr;

// The value behind `name=` in the environment variable; -1 without one, 1 for a name alone.
long setting(const char *name) {
    const char *all = std::getenv("FLOWLANE_HOST_DEVICE");
    for (std::string rest = all ? all : ""; !rest.empty();) {
        size_t comma = rest.find(',');
        std::string one = rest.substr(0, comma);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        size_t equals = one.find('=');
        if (one.substr(0, equals) == name)
            return equals == std::string::npos ? 1 : std::atol(one.c_str() + equals + 1);
    }
    return -1;
}

Stream &of(void *stream) { return stream ? *static_cast<Stream *>(stream) : default_stream; }

// Enqueues work on a stream, or in its capture.
Result enqueue(void *stream, std::function<Result()> work) {
    (of(stream).captured ? of(stream).capture : of(stream).work).push_back(std::move(work));
    return SUCCESS;
}

// What may not be asked for while a stream is captured makes the capture worthless.
Result unsupported(Stream *stream, Result result = CAPTURE_UNSUPPORTED) {
    stream->invalidated = true;
    return result;
}

// Does the next thing that waits on a stream. A device that is gone does nothing any more.
Result step(Stream &stream) {
    auto next = std::move(stream.work.front());
    stream.work.pop_front();
    Result result = vanished ? LAUNCH_FAILED : next();
    if (result) stream.work.clear();
    return result;
}

// Does all that waits on a stream.
Result drain(Stream &stream) {
    while (!stream.work.empty())
        if (Result result = step(stream)) return result;
    return vanished ? LAUNCH_FAILED : SUCCESS;
}

// Does what waits before an event.
Result reach(Event &event) {
    while (!event.recorded && !event.by->work.empty())
        if (Result result = step(*event.by)) return result;
    return vanished ? LAUNCH_FAILED : SUCCESS;
}

bool is_pinned(const void *at) {
    auto after = pinned.upper_bound(static_cast<char *>(const_cast<void *>(at)));
    if (after == pinned.begin()) return false;
    --after;
    return static_cast<const char *>(at) < after->first + after->second;
}

// A copy between the host and the device: later if the host's memory is pinned, as with the real one.
Result copy(void *to, const void *from, size_t bytes, void *stream, const void *host_side) {
    if (of(stream).captured && !is_pinned(host_side)) return unsupported(&of(stream));
    enqueue(stream, [=] {
        std::memcpy(to, from, bytes);
        return SUCCESS;
    });
    return is_pinned(host_side) ? SUCCESS : drain(of(stream));
}

}  // namespace

#define LOCKED std::lock_guard<std::recursive_mutex> guard(lock)
#define BOUND LOCKED; if (!bound) return INVALID_CONTEXT
#define NOT_CAPTURING if (capturing) return unsupported(capturing)

EXPORT Result cuInit(unsigned) { return setting("no-device") > 0 ? NO_DEVICE : SUCCESS; }
EXPORT Result cuDriverGetVersion(int *version) {
    *version = setting("old-driver") > 0 ? 11040 : 13000;
    return SUCCESS;
}
EXPORT Result cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
EXPORT Result cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}
EXPORT Result cuDeviceGetName(char *name, int bytes, int) {
    std::snprintf(name, bytes, "host device (kernels run on the CPU, for tests)");
    return SUCCESS;
}
EXPORT Result cuDeviceTotalMem_v2(size_t *bytes, int) {
    *bytes = setting("memory") >= 0 ? setting("memory") : size_t(1) << 30;
    return SUCCESS;
}
EXPORT Result cuMemGetInfo_v2(size_t *left, size_t *total) {
    LOCKED;
    drain(default_stream);
    cuDeviceTotalMem_v2(total, 0);
    *left = *total - (device_bytes < *total ? device_bytes : *total);
    return SUCCESS;
}
EXPORT Result cuDeviceGetAttribute(int *value, int attribute, int) {
    static const std::map<int, int> known = {
        {1, 1024}, {8, 48 << 10}, {10, 32}, {13, 1980000}, {16, 4}, {38, 1 << 20}, {75, 9}, {76, 0},
        {81, 228 << 10}, {97, 227 << 10}, {115, 1},
    };
    auto found = known.find(attribute);
    *value = found == known.end() ? 0 : found->second;
    return SUCCESS;
}
EXPORT Result cuDevicePrimaryCtxRetain(void **context, int) { *context = &default_stream; return SUCCESS; }
EXPORT Result cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
EXPORT Result cuCtxSetCurrent(void *context) { bound = context != nullptr; return SUCCESS; }
EXPORT Result cuCtxGetCurrent(void **context) {
    *context = bound ? &default_stream : nullptr;
    return SUCCESS;
}

EXPORT Result cuMemAlloc_v2(void **at, size_t bytes) {
    BOUND;
    NOT_CAPTURING;
    size_t total;
    cuDeviceTotalMem_v2(&total, 0);
    if (bytes == 0) return INVALID_VALUE;
    // Memory freed on a stream becomes available.
    drain(default_stream);
    if (vanished) return LAUNCH_FAILED;
    if (device_bytes + bytes > total) return OUT_OF_MEMORY;
    *at = std::malloc(bytes);
    std::memset(*at, 0xa5, bytes);
    device_memory[*at] = bytes;
    device_bytes += bytes;
    return SUCCESS;
}
EXPORT Result cuMemAllocAsync(void **at, size_t bytes, void *) { return cuMemAlloc_v2(at, bytes); }
static Result release(void *at) {
    auto found = device_memory.find(at);
    if (found == device_memory.end()) return INVALID_VALUE;
    device_bytes -= found->second;
    device_memory.erase(found);
    std::free(at);
    return SUCCESS;
}
EXPORT Result cuMemFree_v2(void *at) {
    BOUND;
    NOT_CAPTURING;
    return release(at);
}
EXPORT Result cuMemFreeAsync(void *at, void *stream) {
    BOUND;
    NOT_CAPTURING;
    return enqueue(stream, [=] { return release(at); });
}
EXPORT Result cuMemHostAlloc(void **at, size_t bytes, unsigned) {
    BOUND;
    NOT_CAPTURING;
    *at = std::malloc(bytes);
    pinned[static_cast<char *>(*at)] = bytes;
    return SUCCESS;
}
EXPORT Result cuMemFreeHost(void *at) {
    LOCKED;
    pinned.erase(static_cast<char *>(at));
    std::free(at);
    return SUCCESS;
}
EXPORT Result cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    LOCKED;
    return copy(to, from, bytes, stream, from);
}
EXPORT Result cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    LOCKED;
    return copy(to, from, bytes, stream, to);
}
EXPORT Result cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    LOCKED;
    return enqueue(stream, [=] { std::memcpy(to, from, bytes); return SUCCESS; });
}
EXPORT Result cuMemsetD8Async(void *at, unsigned char value, size_t bytes, void *stream) {
    LOCKED;
    return enqueue(stream, [=] { std::memset(at, value, bytes); return SUCCESS; });
}

EXPORT Result cuStreamCreate(void **stream, unsigned) { *stream = new Stream; return SUCCESS; }
EXPORT Result cuStreamDestroy_v2(void *stream) {
    // It is kept: events may name it still.
    LOCKED;
    return drain(of(stream));
}
EXPORT Result cuStreamSynchronize(void *stream) {
    LOCKED;
    NOT_CAPTURING;
    return of(stream).captured ? unsupported(&of(stream)) : drain(of(stream));
}
EXPORT Result cuEventCreate(void **event, unsigned) { *event = new Event; return SUCCESS; }
EXPORT Result cuEventDestroy_v2(Event *event) { LOCKED; Result result = reach(*event); delete event; return result; }
EXPORT Result cuEventRecord(Event *event, void *stream) {
    LOCKED;
    *event = {false, &of(stream), of(stream).captured};
    return enqueue(stream, [=] { event->recorded = true; return SUCCESS; });
}
EXPORT Result cuEventSynchronize(Event *event) {
    LOCKED;
    NOT_CAPTURING;
    return event->captured ? CAPTURED_EVENT : reach(*event);
}
EXPORT Result cuEventQuery(Event *event) {
    LOCKED;
    NOT_CAPTURING;
    if (event->captured) return CAPTURED_EVENT;
    // A little happens between two questions.
    if (!event->recorded && !event->by->work.empty())
        if (Result result = step(*event->by)) return result;
    return vanished ? LAUNCH_FAILED : event->recorded ? SUCCESS : NOT_READY;
}
EXPORT Result cuEventElapsedTime_v2(float *milliseconds, void *, void *) { *milliseconds = 1; return SUCCESS; }
EXPORT Result cuStreamWaitEvent(void *stream, Event *event, unsigned) {
    LOCKED;
    if (of(stream).captured && !event->captured) return unsupported(&of(stream), CAPTURE_ISOLATION);
    return enqueue(stream, [=] { return reach(*event); });
}

EXPORT Result cuStreamBeginCapture_v2(void *stream, int mode) {
    BOUND;
    // Of one thread only, which is what production code asks for; never of the default stream.
    if (mode != 1 || !stream) return INVALID_VALUE;
    if (capturing || of(stream).captured) return ILLEGAL_STATE;
    of(stream).captured = true;
    of(stream).invalidated = setting("no-capture") > 0;
    of(stream).capture.clear();
    capturing = &of(stream);
    return SUCCESS;
}
EXPORT Result cuStreamEndCapture(void *stream, Work **graph) {
    BOUND;
    *graph = nullptr;
    if (capturing != &of(stream)) return ILLEGAL_STATE;
    capturing = nullptr;
    of(stream).captured = false;
    if (of(stream).invalidated) return CAPTURE_INVALIDATED;
    *graph = new Work(std::move(of(stream).capture));
    return SUCCESS;
}
EXPORT Result cuGraphInstantiateWithFlags(Work **launchable, Work *graph, unsigned long long) {
    BOUND;
    size_t total;
    cuDeviceTotalMem_v2(&total, 0);
    if (device_bytes + GRAPH_BYTES > total) return OUT_OF_MEMORY;
    device_bytes += GRAPH_BYTES;
    *launchable = new Work(*graph);
    return SUCCESS;
}
EXPORT Result cuGraphLaunch(Work *launchable, void *stream) {
    BOUND;
    if (of(stream).captured) return unsupported(&of(stream));
    if (vanished) return LAUNCH_FAILED;
    for (auto &work : *launchable) enqueue(stream, work);
    return SUCCESS;
}
EXPORT Result cuGraphExecDestroy(Work *launchable) {
    BOUND;
    device_bytes -= GRAPH_BYTES;
    delete launchable;
    return SUCCESS;
}
EXPORT Result cuGraphDestroy(Work *graph) {
    BOUND;
    delete graph;
    return SUCCESS;
}

EXPORT Result cuModuleLoadData(void **module, const void *image) {
    // A fat binary of this project, compiled from the sources that are linked here.
    uint32_t magic;
    std::memcpy(&magic, image, sizeof magic);
    *module = &default_stream;
    return magic == 0xba55ed50 ? SUCCESS : INVALID_IMAGE;
}
EXPORT Result cuModuleUnload(void *) { return SUCCESS; }
EXPORT Result cuModuleGetFunction(void **function, void *, const char *name) {
    BOUND;
    // One object for each name: its settings apply to all callers.
    static std::map<std::string, Function> known;
    for (const Kernel &kernel : kernels())
        if (kernel.name == name) {
            *function = &known.emplace(name, Function{&kernel}).first->second;
            return SUCCESS;
        }
    return NOT_FOUND;
}
EXPORT Result cuFuncSetAttribute(Function *function, int attribute, int value) {
    BOUND;
    if (attribute == 8) function->shared_bytes_max = value;
    return value <= 227 << 10 ? SUCCESS : INVALID_VALUE;
}
EXPORT Result cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared_bytes, void *stream, void **arguments, void **) {
    LOCKED;
    bool flat = gy == 1 && gz == 1 && by == 1 && bz == 1;
    if (!flat || gx == 0 || bx == 0 || bx > 1024 || shared_bytes > function->shared_bytes_max) return INVALID_VALUE;
    if (vanished) return LAUNCH_FAILED;
    bool captured = of(stream).captured;
    if (!captured && setting("plain") >= 0 && plain_launches++ >= setting("plain")) return LAUNCH_FAILED;
    // A captured launch runs whenever its graph does, with the arguments of the capture.
    long given = captured ? -1 : launches++;
    shim::Body body = function->kernel->bind(arguments);
    return enqueue(stream, [=] {
        long number = captured ? launches++ : given;
        if (setting("vanish") >= 0 && number >= setting("vanish")) vanished = true;
        if (vanished) return LAUNCH_FAILED;
        uint64_t seed = setting("seed") >= 0 ? setting("seed") : 1;
        shim::launch(body, {gx}, {bx}, shared_bytes, seed * 1000003 + number);
        return SUCCESS;
    });
}

EXPORT Result cuGetErrorName(Result error, const char **name) {
    static const std::map<int, const char *> known = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"},
        {101, "CUDA_ERROR_INVALID_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {500, "CUDA_ERROR_NOT_FOUND"},
        {401, "CUDA_ERROR_ILLEGAL_STATE"}, {600, "CUDA_ERROR_NOT_READY"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
        {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"}, {907, "CUDA_ERROR_CAPTURED_EVENT"},
    };
    auto found = known.find(error);
    *name = found == known.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
    return SUCCESS;
}
EXPORT Result cuGetErrorString(Result error, const char **text) { return cuGetErrorName(error, text); }
