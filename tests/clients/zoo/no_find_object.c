// A preloaded library that makes glibc look older than 2.35: behind it nobody finds _dl_find_object. Only for programs that
// don't unwind their own stack. Compiled with -DPLUGIN.
__asm__(".globl _dl_find_object\n.type _dl_find_object, @object\n.set _dl_find_object, 0");
