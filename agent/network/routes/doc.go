// Package routes owns the routes to the pods of other nodes in the mode routed:
// to those nodes that are on a link of this one, as the Node objects tell. The
// routes are known by their protocol number, so that what an earlier agent has
// left is found; nobody else's are touched.
package routes
