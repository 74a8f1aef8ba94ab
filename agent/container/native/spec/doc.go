// Package spec builds the OCI runtime spec of a container from its CRI configs, the config of
// its image and facts of the node. It does no I/O: what must be read is in Container, as a
// value or as a function with a contract. The same input gives the same spec.
//
// The rules are those of containerd's CRI plugin for Linux with cgroup v2 (versions 2.3.5 and
// 2.4) with its default configuration. File names below are relative to internal/cri of
// containerd, or start with pkg or core.
//
//	what                  rule                                                    source
//	base                  no rlimits, root "rootfs", all devices denied           pkg/oci/spec.go, opts/spec_opts.go
//	args                  command or entrypoint, args or cmd; never empty         opts/spec_opts.go
//	env                   PATH, TERM, HOSTNAME, image, config; a later value      server/container_create.go,
//	                      replaces one of the first three in place                pkg/oci/spec_opts.go
//	cwd                   config, image, "/"                                      server/container_create.go
//	user                  name, uid, gid of the config, else the image's user     util/util.go, pkg/oci/spec_opts.go
//	groups                primary and supplemental ones; Merge adds the image's   server/container_create_linux.go
//	mounts                config over files and volumes over defaults, by depth   opts/spec_linux_opts.go
//	/etc files, /dev/shm  the sandbox's, unless the config mounts there           server/container_create.go
//	image mounts          read-only, no host path, no ID mappings                 server/container_image_mount.go
//	cgroup namespace      own, unless privileged                                  server/container_create.go
//	other namespaces      the sandbox's by path; the host's are left out          opts/spec_opts.go, server/podsandbox/sandbox_run_linux.go
//	user namespace        one mapping, equal to the sandbox's                     server/helpers.go
//	/sys                  a bind mount with host network and user namespace       server/container_create.go
//	masked, read-only     exactly as given; none if privileged                    server/container_create.go
//	devices               numbers of the resolved host path, recursively          opts/spec_linux_opts.go, pkg/oci/utils_unix.go
//	capabilities          default set, ALL, added, dropped; no ambient ones       opts/spec_opts.go
//	privileged            only in a privileged sandbox; all capabilities and      pkg/oci/spec_opts.go
//	                      devices, /sys and cgroups writable
//	resources             swap limit is the memory limit if accounted             opts/spec_linux_opts.go
//	cgroup path           parent/ID, or parent:cri-containerd:ID for a slice      server/helpers.go
//	seccomp               none if privileged; the default one needs the           sputil/seccomp_linux.go
//	                      capabilities first
//	AppArmor              default profile if none is set                          sputil/apparmor_linux.go
//	annotations           io.kubernetes.cri.*                                     annotations/annotations.go
//	stop signal           config, image                                           server/container_stop_signal.go
//
// Differences from containerd:
//
//   - There is no pause process. Namespaces are joined by the paths of their pins, and PID mode
//     POD by the namespace of the sandbox's init process. A container with PID mode NODE in a
//     sandbox without it is an error; containerd joins the sandbox's namespace.
//   - An empty list is equal to an absent one, as it is after a transfer by gRPC.
//   - OOM scores outside of -1000 to 1000, unknown PID modes, and more than 65536 groups are
//     errors here and not when the OCI runtime starts the container.
//   - User, group and supplemental group IDs outside of 0 to 2147483647 are errors. containerd
//     cuts supplemental groups to 32 bits, so that 4294967296 is the group of root.
//   - An entry of passwd or group with a malformed ID is skipped. containerd reads it as 0,
//     which is root. Each file has at most 1 MiB (containerd: 10 MiB).
//   - Mount.mount_options of CRI (Kubernetes 1.37): noexec, nodev and nosuid are applied, others
//     are errors. containerd ignores the field.
//   - ID mappings of mounts with a handler that has no idmapped mounts are an error here.
//     containerd detects it when it creates the task (core/runtime/v2/task_manager.go).
//   - RuntimeDefault of AppArmor needs a profile that is loaded. containerd loads it itself.
//   - Volumes of the image are sorted by path. containerd's order is random.
//
// Refused by name, with the remedy in the error: CDI devices, blockio and RDT classes, SELinux
// options where the kernel has SELinux. Not in this package, because a container's spec has
// nothing of it: names and log paths, snapshots, host ports, sysctls, NRI, the owner of the
// FIFOs, and the options of containerd's configuration that have another value than its
// default (except DeviceOwnership).
package spec
