/*
 * A read-only view of a folder through FUSE, every request of which takes its time: a file system across a network.
 *
 *     slowfs SOURCE MOUNT META_US READ_US CACHE_S
 *
 * Speaks the kernel's protocol (linux/fuse.h) itself: no library is needed, but root is, for mount(2). Requests are
 * answered by THREADS threads, each after a sleep of META_US microseconds, or READ_US for a read: as round trips to a
 * server that is never busy. The kernel keeps names, absent names and attributes for CACHE_S seconds, and data until it
 * is unmounted. A new mount starts cold.
 *
 * Says "ready" when mounted. A line "counts" on standard input is answered by one line of JSON with the requests so
 * far; the end of standard input ends the mount, so it is gone when whoever made it is.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 64, LARGEST = 128 * 1024, BUFFER = LARGEST + 4096, BUCKETS = 1 << 16 };

enum counted { LOOKUP, ABSENT, GETATTR, READLINK, OPEN, OPENDIR, READDIR, STATFS, READ, COUNTED };
static const char *const names[COUNTED] = {"lookup", "absent", "getattr", "readlink", "open",
                                           "opendir", "readdir", "statfs", "read"};
static atomic_ulong counts[COUNTED], bytes;
static long meta_us, read_us, cache_s;
static int device;

static void request(enum counted kind)
{
    long us = kind == READ ? read_us : meta_us;
    struct timespec nap = {us / 1000000, us % 1000000 * 1000};
    counts[kind]++;
    if (us > 0)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
}

/* ---- nodes: a path each, kept until the end: what is looked up in one start fits in a few MB ---- */

struct node {
    struct node *next;
    uint64_t number;
    char path[];
};
static struct node *by_path[BUCKETS], **by_number;
static uint64_t nodes, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t number_of(const char *path)
{
    uint64_t hash = 5381, number;
    for (const char *at = path; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    struct node **bucket = &by_path[hash % BUCKETS], *found;
    pthread_mutex_lock(&lock);
    for (found = *bucket; found && strcmp(found->path, path);)
        found = found->next;
    if (!found) {
        found = malloc(sizeof *found + strlen(path) + 1);
        strcpy(found->path, path);
        found->next = *bucket;
        found->number = ++nodes;
        *bucket = found;
        if (nodes >= room) {
            room = room ? 2 * room : 4096;
            by_number = realloc(by_number, room * sizeof *by_number);
        }
        by_number[nodes] = found;
    }
    number = found->number;
    pthread_mutex_unlock(&lock);
    return number;
}

static const char *path_of(uint64_t number)
{
    pthread_mutex_lock(&lock);
    const char *path = by_number[number]->path;
    pthread_mutex_unlock(&lock);
    return path;
}

/* ---- answers ---- */

static void answer(uint64_t unique, int error, const void *body, size_t size)
{
    struct fuse_out_header head = {sizeof head + (error ? 0 : size), -error, unique};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)body, error ? 0 : size}};
    /* ENOENT: the request was interrupted meanwhile, nobody waits */
    if (writev(device, parts, 2) < 0 && errno != ENOENT && errno != ENODEV)
        perror("slowfs: answer");
}

static struct fuse_attr attributes(const struct stat *st)
{
    struct fuse_attr a = {0};
    a.ino = st->st_ino, a.size = st->st_size, a.blocks = st->st_blocks, a.blksize = st->st_blksize;
    a.mode = st->st_mode, a.nlink = st->st_nlink, a.uid = st->st_uid, a.gid = st->st_gid, a.rdev = st->st_rdev;
    a.atime = st->st_atim.tv_sec, a.atimensec = st->st_atim.tv_nsec;
    a.mtime = st->st_mtim.tv_sec, a.mtimensec = st->st_mtim.tv_nsec;
    a.ctime = st->st_ctim.tv_sec, a.ctimensec = st->st_ctim.tv_nsec;
    return a;
}

static void lookup(const struct fuse_in_header *in, const char *name)
{
    char path[8192];
    struct stat st;
    struct fuse_entry_out out = {.entry_valid = cache_s, .attr_valid = cache_s};
    snprintf(path, sizeof path, "%s/%s", path_of(in->nodeid), name);
    if (lstat(path, &st) == 0) {
        request(LOOKUP);
        out.nodeid = number_of(path);
        out.attr = attributes(&st);
    } else if (errno == ENOENT || errno == ENOTDIR) {
        request(ABSENT); /* node 0: the kernel keeps that there is none */
    } else {
        answer(in->unique, errno, NULL, 0);
        return;
    }
    answer(in->unique, 0, &out, sizeof out);
}

static void getattr(const struct fuse_in_header *in)
{
    struct stat st;
    struct fuse_attr_out out = {.attr_valid = cache_s};
    request(GETATTR);
    int error = lstat(path_of(in->nodeid), &st) ? errno : 0;
    if (!error)
        out.attr = attributes(&st);
    answer(in->unique, error, &out, sizeof out);
}

static void readlink_(const struct fuse_in_header *in)
{
    char target[4096];
    request(READLINK);
    ssize_t size = readlink(path_of(in->nodeid), target, sizeof target);
    answer(in->unique, size < 0 ? errno : 0, target, size < 0 ? 0 : size);
}

static void open_(const struct fuse_in_header *in, const struct fuse_open_in *wanted)
{
    struct fuse_open_out out = {.open_flags = FOPEN_KEEP_CACHE};
    request(OPEN);
    if ((wanted->flags & O_ACCMODE) != O_RDONLY) {
        answer(in->unique, EROFS, NULL, 0);
        return;
    }
    int fd = open(path_of(in->nodeid), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    out.fh = fd;
    answer(in->unique, fd < 0 ? errno : 0, &out, sizeof out);
}

static void read_(const struct fuse_in_header *in, const struct fuse_read_in *wanted, char *buffer)
{
    request(READ);
    ssize_t size = pread(wanted->fh, buffer, wanted->size < LARGEST ? wanted->size : LARGEST, wanted->offset);
    if (size > 0)
        bytes += size;
    answer(in->unique, size < 0 ? errno : 0, buffer, size < 0 ? 0 : size);
}

static void opendir_(const struct fuse_in_header *in)
{
    struct fuse_open_out out = {0};
    request(OPENDIR);
    DIR *folder = opendir(path_of(in->nodeid));
    out.fh = (uintptr_t)folder;
    answer(in->unique, folder ? 0 : errno, &out, sizeof out);
}

static void readdir_(const struct fuse_in_header *in, const struct fuse_read_in *wanted, char *buffer)
{
    DIR *folder = (DIR *)(uintptr_t)wanted->fh;
    size_t used = 0, most = wanted->size < LARGEST ? wanted->size : LARGEST;
    request(READDIR);
    seekdir(folder, wanted->offset);
    for (struct dirent *entry; (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
        if (used + size > most)
            break;
        struct fuse_dirent *to = (struct fuse_dirent *)(buffer + used);
        memset(to, 0, size);
        to->ino = entry->d_ino, to->off = entry->d_off, to->namelen = length, to->type = entry->d_type;
        memcpy(to->name, entry->d_name, length);
        used += size;
    }
    answer(in->unique, 0, buffer, used);
}

static void statfs(const struct fuse_in_header *in)
{
    struct statvfs st;
    struct fuse_statfs_out out = {0};
    request(STATFS);
    int error = statvfs(path_of(in->nodeid), &st) ? errno : 0;
    out.st.blocks = st.f_blocks, out.st.bsize = st.f_bsize, out.st.frsize = st.f_frsize;
    out.st.namelen = st.f_namemax, out.st.files = st.f_files;
    answer(in->unique, error, &out, sizeof out);
}

static void init(const struct fuse_in_header *in, const struct fuse_init_in *wanted)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = wanted->max_readahead};
    out.flags = wanted->flags & (FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS | FUSE_BIG_WRITES | FUSE_MAX_PAGES);
    out.max_background = THREADS, out.congestion_threshold = THREADS * 3 / 4;
    out.max_write = LARGEST, out.max_pages = LARGEST / 4096, out.time_gran = 1;
    answer(in->unique, 0, &out, sizeof out);
}

/* Whether to go on. */
static int serve(char *message, char *buffer)
{
    ssize_t size = read(device, message, BUFFER);
    if (size < 0)
        return errno == EINTR || errno == EAGAIN || errno == ENOENT;
    const struct fuse_in_header *in = (const void *)message;
    const void *body = message + sizeof *in;
    switch (in->opcode) {
    case FUSE_INIT: init(in, body); break;
    case FUSE_LOOKUP: lookup(in, body); break;
    case FUSE_GETATTR: getattr(in); break;
    case FUSE_READLINK: readlink_(in); break;
    case FUSE_OPEN: open_(in, body); break;
    case FUSE_READ: read_(in, body, buffer); break;
    case FUSE_OPENDIR: opendir_(in); break;
    case FUSE_READDIR: readdir_(in, body, buffer); break;
    case FUSE_STATFS: statfs(in); break;
    case FUSE_RELEASE: close(((const struct fuse_release_in *)body)->fh); answer(in->unique, 0, NULL, 0); break;
    case FUSE_RELEASEDIR:
        closedir((DIR *)(uintptr_t)((const struct fuse_release_in *)body)->fh);
        answer(in->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break; /* not answered */
    case FUSE_CREATE: case FUSE_MKDIR: case FUSE_UNLINK: case FUSE_RMDIR: case FUSE_RENAME: case FUSE_RENAME2:
    case FUSE_SETATTR: case FUSE_WRITE: case FUSE_SYMLINK: case FUSE_LINK: case FUSE_MKNOD:
        answer(in->unique, EROFS, NULL, 0);
        break;
    default: answer(in->unique, ENOSYS, NULL, 0); /* flush, access, xattr: the kernel does not ask again */
    }
    return 1;
}

static void *work(void *unused)
{
    char *message = malloc(BUFFER), *buffer = malloc(LARGEST);
    (void)unused;
    while (serve(message, buffer))
        ;
    return NULL;
}

static void tell(void)
{
    unsigned long metadata = 0;
    printf("{");
    for (int kind = 0; kind < COUNTED; kind++) {
        printf("\"%s\": %lu, ", names[kind], counts[kind]);
        metadata += kind == READ ? 0 : counts[kind];
    }
    printf("\"metadata\": %lu, \"bytes\": %lu}\n", metadata, bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char options[200], line[64];
    pthread_t thread;
    if (argc != 6) {
        fprintf(stderr, "usage: slowfs SOURCE MOUNT META_US READ_US CACHE_S\n");
        return 2;
    }
    meta_us = atol(argv[3]), read_us = atol(argv[4]), cache_s = atol(argv[5]);
    prctl(PR_SET_TIMERSLACK, 1000); /* sleeps end when they should; threads inherit it */
    number_of(argv[1]); /* number 1, as the kernel has the root */
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,max_read=%d", device,
             LARGEST);
    if (device < 0 || mount("slowfs", argv[2], "fuse.slowfs", MS_NODEV | MS_NOSUID | MS_RDONLY, options)) {
        perror("slowfs: mount");
        return 1;
    }
    for (int number = 0; number < THREADS; number++)
        pthread_create(&thread, NULL, work, NULL);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        tell();
    if (umount2(argv[2], MNT_DETACH))
        perror("slowfs: umount");
    return 0;
}
