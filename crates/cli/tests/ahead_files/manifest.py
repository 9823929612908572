"""Everything that can be seen of a tree; with a second argument also what differs from run to run: times and inodes."""
import hashlib
import os
import stat
import sys


def tell(root, exact):
    def line(path):
        s = os.lstat(path)
        is_dir = stat.S_ISDIR(s.st_mode)
        words = [path[len(root):] or "/", oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink]
        words += [0 if is_dir else s.st_size, s.st_blocks]
        if exact:
            words += [s.st_mtime_ns, s.st_atime_ns, s.st_ino, s.st_size]
        if stat.S_ISLNK(s.st_mode):
            words.append(os.readlink(path))
        else:
            words.append([(name, os.getxattr(path, name)) for name in sorted(os.listxattr(path))])
        if stat.S_ISREG(s.st_mode):
            with open(path, "rb") as file:
                words.append(hashlib.md5(file.read()).hexdigest())
        print(*words)
        if is_dir:
            for name in sorted(os.listdir(path)):
                line(path + "/" + name)

    line(root)
    sys.stdout.flush()


if __name__ == "__main__":
    tell(sys.argv[1], len(sys.argv) > 2)
