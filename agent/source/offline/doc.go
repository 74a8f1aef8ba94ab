// Package offline stores on disk what the node needs to run its API pods again
// after a start without network: the admitted pods, the terminal status of
// those that ended, and the objects and tokens that the others use. The kubelet
// has no counterpart: it forgets API pods when it stops and waits for the API
// server. The stored pods are replayed with the kubelet's operation RESTORE
// (pkg/kubelet/types/pod_update.go).
//
// # Format on disk
//
// Everything is in one agent/store/journal, with its guarantees on power loss
// and damage. The directory has mode 0700 and the file 0600. A value is one
// byte, the format version (1), followed by a message in protobuf. The keys
// are:
//
//	pod/<uid>                         v1.Pod
//	end/<uid>                         v1.PodStatus, of a terminal pod
//	object/<kind>/<namespace>/<name>  v1.ConfigMap, v1.Secret,
//	                                  v1.PersistentVolumeClaim,
//	                                  v1.PersistentVolume, nodev1.RuntimeClass
//	object/Services/<namespace>/      v1.ServiceList
//	object/TrustBundle//<sha-256>     v1.ConfigMap with the anchors in "pem";
//	                                  the hash is that of the selection
//	token/<uid>/<seconds>/<audience>  authenticationv1.TokenRequestStatus
//
// Of a pod, the spec and the metadata are stored without managedFields and
// resourceVersion. Of its status, only what neither the runtime nor the node
// can restore is stored: the start time, the conditions of its readiness gates,
// and the whole status if the pod was already terminal on the API server. The
// runtime has the restart counts and former exits of containers.
//
// A value of another version, or one that does not decode, is left in place,
// since a later version may be able to read it. While the value of a pod is
// unreadable, no object is dropped.
//
// Secrets and tokens are on the disk. Without a key, everybody who can read the
// storage device can read them, but no other user of the node can. With a key
// (KeyFile, Keyring, agent/store/tpmkey) the journal is sealed with
// AES-256-GCM, which is as secure as the place of the key. With a key, Open
// quarantines a journal that is not sealed or older than its anchor
// (FileAnchor, tpmkey.Counter), and starts a new one; Migrate accepts it once.
//
// # Writes
//
// The store writes only if something changed: an unchanged answer of the API
// server causes no write. Objects that are no longer referenced are removed by
// a later write.
//
// A full disk, or a journal over its limit, does not prevent a pod from
// running: Admit returns ErrFull, the caller runs the pod nevertheless and
// emits an event with the error, and the pod is not restored without network
// until a later Admit succeeds.
package offline
