# A file system is made on a loop device, which wants to be its only user, and is mounted. A close that was only guessed
# would leave the device, or the file system, in use. (What was made has a number and times of its own.)
# @root
# @needs losetup mkfs.ext4 e2fsck mount
# @never WRONG
truncate -s 16M image
device=$(losetup -f --show image) || exit
trap 'losetup -d "$device"; rm image' EXIT
for i in 1 2; do
    mkfs.ext4 -q -F "$device" || echo WRONG
    mkdir -p at
    mount "$device" at || echo WRONG
    echo "text $i" > at/file
    cat at/file
    umount at || echo WRONG
    e2fsck -fn "$device" > /dev/null 2>&1 || echo WRONG
done
