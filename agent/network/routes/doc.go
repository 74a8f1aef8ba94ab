// Package routes maintains the routes to the pods of other nodes in mode routed. It
// adds routes for nodes that are on a link of this node, according to the Node
// objects. The routes carry a protocol number of their own, by which those of an
// earlier process are found. Routes of others are never changed.
package routes
