/* The supervisor as one static executable: CPython, with the byte code of every module that it needs frozen in.

   The rule: it needs nothing of the root file system that it runs in, and nothing of the environment changes it. No
   option, variable, locale, module path or library of the image is read. What must never happen: that it changes the
   environment, which is the worker's (python3 itself sets LC_CTYPE where the locale is C).

   build.sh makes it; freeze.py writes frozen.h and inittab.h. */
#include <Python.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "frozen.h"

/* The module _gangsys: what gangsidecar/supervisor/kernel.py uses ctypes for elsewhere. */

static PyObject *gangsys_prctl(PyObject *self, PyObject *arguments)
{
    int option;
    unsigned long value;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "ik", &option, &value))
        return NULL;
    return PyLong_FromLong(prctl(option, value, 0, 0, 0) == 0 ? 0 : errno);
}

/* Give back the heap that is free, and the pages of code and constants that only the start has needed. A page that is
   needed again comes back from the page cache. */
static PyObject *gangsys_trim(PyObject *self, PyObject *arguments)
{
    const ElfW(Phdr) *header = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    unsigned long page = (unsigned long)sysconf(_SC_PAGESIZE);
    (void)self;
    (void)arguments;
    malloc_trim(0);
    for (unsigned long left = getauxval(AT_PHNUM); left > 0; left--, header++) {
        if (header->p_type == PT_LOAD && !(header->p_flags & PF_W)) {
            /* p_vaddr is the address: the executable is not position-independent. */
            unsigned long begin = (header->p_vaddr + page - 1) & ~(page - 1);
            unsigned long end = (header->p_vaddr + header->p_memsz) & ~(page - 1);
            if (begin < end)
                madvise((void *)begin, end - begin, MADV_DONTNEED);
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef gangsys_methods[] = {
    {"prctl", gangsys_prctl, METH_VARARGS, "prctl(option, value): 0, or what errno is then"},
    {"trim", gangsys_trim, METH_NOARGS, "give back memory that only the start has needed"},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef_Slot gangsys_slots[] = {{0, NULL}};
static struct PyModuleDef gangsys = {PyModuleDef_HEAD_INIT, .m_name = "_gangsys", .m_methods = gangsys_methods,
                                     .m_slots = gangsys_slots};

static PyObject *PyInit__gangsys(void)
{
    return PyModuleDef_Init(&gangsys);
}

/* The modules written in C. This table replaces that of libpython: what it does not name is not linked. */

extern PyObject *PyMarshal_Init(void), *PyInit__imp(void), *_PyWarnings_Init(void), *PyInit__string(void);
#define MODULE(name) extern PyObject *PyInit_##name(void);
#include "inittab.h"
#undef MODULE
#define MODULE(name) {#name, PyInit_##name},
struct _inittab _PyImport_Inittab[] = {
#include "inittab.h"
    {"_gangsys", PyInit__gangsys},
    {"_imp", PyInit__imp},
    {"_string", PyInit__string},
    {"_warnings", _PyWarnings_Init},
    {"builtins", NULL},
    {"marshal", PyMarshal_Init},
    {"sys", NULL},
    {NULL, NULL}};

static void check(PyStatus status)
{
    if (PyStatus_Exception(status))
        Py_ExitStatusException(status);
}

/* The kernel drops a signal that the first process of a container has no handler for yet, and the kubelet sends one of
   these (wire.STOP_SIGNALS) once. So it waits until the loop catches it (event_loop.py). */
static void keep_signals(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGQUIT);
    sigaddset(&ends, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &ends, NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        keep_signals();
    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before); /* leaves the locale alone */
    before.utf8_mode = 1;                    /* any byte of the environment and of the command comes through */
    check(Py_PreInitialize(&before));

    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 1; /* as python3 has it: a closed pipe is an error, not the end */
    config.module_search_paths_set = 1; /* to none */
    config.parse_argv = 0;
    config.pathconfig_warnings = 0;
    config.site_import = 0;
    config.write_bytecode = 0;
    check(PyConfig_SetBytesString(&config, &config.executable, argc > 0 ? argv[0] : ""));
    check(PyConfig_SetBytesString(&config, &config.home, "/nonexistent")); /* else it is looked for */
    check(PyConfig_SetBytesArgv(&config, argc, argv));
    PyImport_FrozenModules = frozen;
    check(Py_InitializeFromConfig(&config));
    PyConfig_Clear(&config);

    int code = 0;
    if (PyImport_ImportFrozenModule("__main__") <= 0) {
        PyErr_Print(); /* sys.exit() ends the process here */
        code = 1;
    }
    return Py_FinalizeEx() < 0 ? 120 : code;
}
