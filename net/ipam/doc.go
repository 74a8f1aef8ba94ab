// Package ipam owns the address leases of the node's pod networks: which owner has
// which address. The leases are files in a directory that several processes may change
// at the same time. A killed process leaves no partial lease, and no two leases have the
// same address. The package configures no network interface.
//
//	<dir>/boot-<boot ID>/owners/<hash>        the lease, as JSON
//	<dir>/boot-<boot ID>/addresses/<address>  a symbolic link to ../owners/<hash>
//
// Two rules make this safe:
//
//   - A symbolic link reserves an address for an owner. symlink(2) fails if the name
//     exists, so the file system decides between owners. The link names its owner from
//     the moment at which it exists: it is never empty or partial.
//   - A process changes the file of an owner, and the links to it, only while it holds
//     the lock (flock) of that file and after it has checked that the file still has its
//     name. So no process removes a link that belongs to another owner.
//
// Only calls for the same owner wait for each other. There is no index, and a call that
// allocates or releases an address neither lists nor reads the leases of other owners.
// The kernel releases the locks of a process that is killed. That distinguishes an
// incomplete lease from one that is being created, without a clock; on a board without a
// battery-backed clock the time may jump by decades.
//
// A lease is valid if its file is complete and all its links exist. A killed Allocate
// leaves links that the owner's file does not list, and a killed Release leaves a file
// without some of its links. Neither is a valid lease. The next call for the same owner,
// Collect, or an Allocate that finds no other free address removes them.
//
// Nothing is synced to the disk. A network namespace does not survive a reboot, and so no
// lease does. Each boot has a directory of its own: what a power cut has damaged is in a
// directory that is not read again. A pod still tends to get the same address after a
// reboot, because the hash of its key determines the first address to try.
//
// So the directory may be in a tmpfs such as /run without losing anything. It then takes
// about 7 KB of memory for each running pod and causes no writes to the disk. On a disk
// the file system's journal causes most of the writes. Measured on ext4 with blocks of
// 4 KB: an Allocate or Release in a commit of its own writes 70 KB to the device, 4 KB of
// them for the lease; ten in one commit (of five seconds) write 120 KB; a hundred pods
// that start and end within one commit write 64 KB.
package ipam
