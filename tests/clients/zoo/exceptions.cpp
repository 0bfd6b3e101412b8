// An allocation fails and something is thrown, once for each sort of thing: classes of the C++ library and classes that derive
// from them in every way, a what() of the program's own, PyTorch's error by its names and layout, and what is no class at all.
// The trace must have what those say whose what() is the C++ library's, and PyTorch's message; no function of the program may be
// called by anybody else: it counts.
#include <cerrno>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "hip_min.h"

static int calls;

struct Other {
    virtual ~Other() = default;
    long number = 1;
};
struct Derived : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Second : Other, std::logic_error {
    Second() : std::logic_error("a second base") {}
};
struct Far : Other, virtual std::runtime_error {
    Far() : std::runtime_error("a virtual base") {}
};
struct Another {
    virtual ~Another() = default;
};
struct Farther : Another, Far {
    Farther() : std::runtime_error("a virtual base of a base") {}
};
struct Hidden : private std::runtime_error {
    Hidden() : std::runtime_error("a private base") {}
};
struct Own : std::exception {
    const char *what() const noexcept override { return calls++, "never"; }
};
struct OwnOfDerived : std::runtime_error {
    OwnOfDerived() : std::runtime_error("not this") {}
    const char *what() const noexcept override { return calls++, "never"; }
};
struct Plain {
    int number;
};

namespace c10 {
class Error : public std::exception {
    std::string msg_;

public:
    explicit Error(std::string message) : msg_(std::move(message)) {}
    const char *what() const noexcept override { return calls++, "with a backtrace"; }
    virtual const char *what_without_backtrace() const noexcept { return calls++, msg_.c_str(); }
};
class OutOfMemoryError : public Error {
public:
    using Error::Error;
};
}  // namespace c10

template <typename Thrown>
static void fail_and_throw(const char *name, Thrown thrown) {
    void *block;
    hipError_t status = hipMalloc(&block, 4096 * GiB);
    errno = 4711;
    try {
        throw thrown;
    } catch (...) {
        printf("%s: status %d, errno %d, last error %d\n", name, status, errno, hipGetLastError());
    }
}

int main() {
    fail_and_throw("runtime", std::runtime_error("of the library"));
    fail_and_throw("derived", Derived("derived from it"));
    fail_and_throw("second", Second());
    fail_and_throw("far", Far());
    fail_and_throw("farther", Farther());
    fail_and_throw("hidden", Hidden());
    fail_and_throw("bad_alloc", std::bad_alloc());
    fail_and_throw("system", std::system_error(ENOMEM, std::generic_category(), "of the system"));
    fail_and_throw("long", std::runtime_error(std::string(5000, 'x')));
    fail_and_throw("own", Own());
    fail_and_throw("own of derived", OwnOfDerived());
    fail_and_throw("plain", Plain{1});
    fail_and_throw("int", 42);
    fail_and_throw("text", "a text");
    fail_and_throw("null", static_cast<Derived *>(nullptr));
    fail_and_throw("nullptr", nullptr);
    fail_and_throw("torch", c10::Error("a short one"));
    fail_and_throw("torch memory", c10::OutOfMemoryError("CUDA out of memory. Tried to allocate 4096.00 GiB."));
    printf("%d calls of the program's functions\n", calls);
    return 0;
}
