// Package image tests an image that Buildroot made of the tree in buildroot/: a board boots
// it, is set up from the file on its boot partition, joins a real control plane, and
// survives power cuts. IMAGE is the directory that "make image" leaves.
package image
